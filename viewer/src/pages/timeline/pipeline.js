// Pipelined loops: which IPU is at work on which micro-batch, and how long each one waits.

import { Chart, colour, fill, legend, tag } from "../../chart.js";
import { card, heading, make, note, table } from "../../dom.js";
import { percent, plain, seconds } from "../../format.js";
import { RowsBy } from "../../tiles.js";
import { Window } from "./window.js";

/** @typedef {import("../timeline.js").Timeline} Timeline */

const KINDS = /** @type {[string, string, number][]} */ ([["forward", "compute", 0], ["backward", "bubble", 1]]);

/** One section for each pipelined loop. @param {Timeline} t @param {import("../../packet.js").Table} rows of `pipeline` @returns {Node[]} */
export function pipelines(t, rows) {
  const by = new RowsBy(rows.numbers("repeat"));
  return by.values().map((operation) => pipeline(t, rows, operation, [...by.of(operation)]));
}

/** @param {Timeline} t @param {import("../../packet.js").Table} rows @param {number} operation @param {number[]} members */
function pipeline(t, rows, operation, members) {
  const of = (/** @type {string} */ name) => rows.numbers(name), [ipu, stage, backward, batch, start, length] = ["ipu", "stage", "backward", "micro_batch", "start", "length"].map(of);
  const name = t.line.operations.words("callee").at(operation) || t.line.operations.words("name").at(operation);
  let first = Infinity, end = 0, ipus = 0, stages = 0, batches = 0, busy = 0;
  const work = new Map();
  for (const i of members) {
    first = Math.min(first, start[i]);
    end = Math.max(end, start[i] + length[i]);
    ipus = Math.max(ipus, ipu[i] + 1);
    stages = Math.max(stages, stage[i] + 1);
    batches = Math.max(batches, batch[i] + 1);
    busy += length[i];
    work.set(ipu[i], (work.get(ipu[i]) ?? 0) + length[i]);
  }
  // Filled when every IPU has begun, drained from when the first has nothing more to do.
  let filled = first, draining = end;
  for (let k = 0; k < ipus; k++) {
    let begun = Infinity, over = 0;
    for (const i of members) if (ipu[i] === k) { begun = Math.min(begun, start[i]); over = Math.max(over, start[i] + length[i]); }
    if (begun < Infinity) { filled = Math.max(filled, begun); draining = Math.min(draining, over); }
  }
  const edges = Float64Array.of(0, end - first), window = new Window({ name: "cycles", count: 1, edges, unit: () => 1 }, null);
  const tall = Math.round(Math.max(7, Math.min(26, 420 / ipus))), height = 18 + ipus * tall, span = end - first;
  const order = [...members].sort((a, b) => start[a] - start[b]);
  const repaint = () => chart.repaint();
  const at = (/** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ width) => {
    const position = first + window.position(x, width), lane = Math.floor((y - 18) / tall);
    return { position, lane, row: order.find((i) => ipu[i] === lane && start[i] <= position && position < start[i] + length[i]) };
  };
  let lane = 0;
  const chart = new Chart({
    height,
    label: `Pipeline ${name}: ${stages} stages on ${ipus} IPUs, ${batches} micro-batches`,
    draw: (g, width) => {
      g.fillStyle = colour("idle");
      g.fillRect(0, 18, width, height - 18);
      const pixel = (/** @type {number} */ cycle) => window.pixel(cycle - first, width);
      const free = [new Float64Array(ipus), new Float64Array(ipus)];
      for (const [kind, [, hue, hatch]] of KINDS.entries()) {
        const paint = fill(g, hue, hatch);
        for (const i of order) {
          if ((backward[i] ? 1 : 0) !== kind) continue;
          const a = Math.max(0, pixel(start[i])), b = Math.min(width, pixel(start[i] + length[i]));
          if (b <= 0 || a >= width || b <= free[kind][ipu[i]]) continue;
          free[kind][ipu[i]] = Math.max(Math.floor(b), a + 0.5);
          const wide = Math.max(1, b - a - (b - a > 4 ? 1 : 0)), text = String(batch[i]);
          g.fillStyle = paint;
          g.fillRect(a, 18 + ipu[i] * tall, wide, tall - 1);
          if (tall >= 14 && wide > g.measureText(text).width + 6) tag(g, text, a + (wide - g.measureText(text).width) / 2, 18 + ipu[i] * tall + (tall - 14) / 2, "ink");
        }
      }
      for (const [text, x] of /** @type {[string, number][]} */ ([["filled", pixel(filled)], ["draining", pixel(draining)]])) {
        if (filled >= draining || x < 0 || x > width) continue;
        g.fillStyle = colour("ink");
        g.fillRect(x, 0, 1, height);
        tag(g, text, text === "filled" ? x + 4 : Math.max(0, x - g.measureText(text).width - 4), 1, "ink");
      }
    },
    read: (x, y, width) => {
      const { position, row } = at(x, y, width), cycle = `cycle ${plain(position)} of the loop`;
      const here = Math.max(0, Math.min(ipus - 1, Math.floor((y - 18) / tall)));
      return row === undefined ? `IPU ${here} waits\n${cycle}` : `IPU ${here}: stage ${stage[row]}, ${backward[row] ? "backward" : "forward"}, micro-batch ${batch[row]}\n${plain(length[row])} cycles from ${plain(start[row])}\n${cycle}`;
    },
    pick: (_x, y) => t.context.state.set({ ipu: Math.max(0, Math.min(ipus - 1, Math.floor((y - 18) / tall))) }),
    level: () => 18 + (lane + 0.5) * tall,
    zoom: (x, factor, width) => { window.zoom(x, factor, width); repaint(); },
    pan: (pixels, width) => { window.pan(pixels, width); repaint(); },
    keys: (key) => {
      if (key === "0") window.set(0, span);
      else if (key === "ArrowDown" || key === "ArrowUp") lane = Math.max(0, Math.min(ipus - 1, lane + (key === "ArrowDown" ? 1 : -1)));
      else return false;
      return true;
    },
    rows: () => table([{ name: "IPU", value: (k) => k }, { name: "at work", value: (k) => work.get(k) ?? 0, show: plain }, { name: "waits", value: (k) => span - (work.get(k) ?? 0), show: plain },
      { name: "share that waits", value: (k) => span - (work.get(k) ?? 0), show: (v) => percent(v, span) }], Array.from({ length: ipus }, (_, k) => k), `Pipeline ${name} by IPU`),
  });
  const bubble = t.line.operations.numbers("bubble")[operation], whole = t.line.operations.numbers("cycles")[operation];
  return make("section", { "aria-label": "Pipeline " + name },
    heading(`Pipeline ${name}`),
    make("div", { class: "cards" },
      card("Stages", String(stages), `on ${ipus} IPUs, ${plain(batches)} micro-batches`),
      card("Waiting", percent(ipus * span - busy, ipus * span), "of the IPUs' time in this loop"),
      card("Ramp and drain", filled < draining ? percent(filled - first + end - draining, span) : "100 %", "of the loop's time"),
      bubble ? card("Bubble", percent(bubble, whole), `charged: ${plain(bubble)} cycles`) : null,
      card("Loop", seconds(span / t.summary.clock_hz), plain(span) + " cycles")),
    chart.node, legend([...(members.some((i) => backward[i]) ? KINDS : KINDS.slice(0, 1)), ["waits", "idle", 0]]),
    note("A row for each IPU, a block for each micro-batch. W and S zoom, A and D move, 0 shows all, the arrows read."));
}
