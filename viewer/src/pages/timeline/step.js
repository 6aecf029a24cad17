// The chosen moment: what each tile does in it, and why a tile waits.

import { Chart, colour, fill, legend, limitLine, onPixel, tag } from "../../chart.js";
import { card, heading, make, note, problem, select, table } from "../../dom.js";
import { bytes, cycles, flops, percent, plain, seconds } from "../../format.js";
import { Grid } from "../../grid.js";
import { encoded } from "../../state.js";
import { HATCH } from "./lanes.js";
import { LEFT_OUT } from "./tiles.js";

/** @typedef {import("../timeline.js").Timeline} Timeline */

/** Everything about the chosen moment. @param {Timeline} t */
export function step(t) {
  const moment = t.chosen(), operation = moment < 0 ? -1 : t.line.operation[moment];
  if (operation < 0) return make("section", null, heading("No step is chosen"), note("Click a step in the lanes or in the raster, or press J in one of them, to see what each tile does in it and why a tile waits."));
  const { operations } = t.line, of = (/** @type {string} */ name) => operations.numbers(name)[operation], word = (/** @type {string} */ name) => operations.words(name).at(operation);
  const sets = t.sets.of(operation), kind = word("kind");
  const more = [["operations", "Operations"], ["memory", "Memory"], ["liveness", "Liveness"], ["exchange", "Exchange"]].map(([page, title]) =>
    make("a", { href: encoded({ ...t.context.state.selection, page, operation: word("key"), view: "" }) }, title));
  const times = of("times"), count = of("count"), whole = of("cycles");
  return make("section", { "aria-label": "The chosen step" },
    heading(t.momentName(moment)),
    make("p", { class: "note" }, [t.place(operation), word("types"), of("ipu") >= 0 ? "IPU " + of("ipu") : "", word("phase"), "from cycle " + plain(t.line.start[moment])].filter(Boolean).join(" · "), " · see it in: ", ...more.flatMap((link, i) => (i ? [", ", link] : [link]))),
    sourceLine(t, operation),
    make("div", { class: "cards" },
      card("Cycles", plain(whole), `${seconds(whole / t.summary.clock_hz)}${times > 1 ? `, × ${plain(times)} a run: ${percent(whole * times, t.summary.cycles)}` : `, ${percent(whole, t.summary.cycles)} of the run`}`),
      ...["compute", "exchange", "links", "sync", "host", "bubble", "overhead"].filter((part) => of(part)).map((part) => card(part[0].toUpperCase() + part.slice(1), plain(of(part)), percent(of(part), whole) + " of it")),
      count > 1 ? card("Turns", "× " + plain(count), cycles(whole / count) + " each") : null,
      sets.length || t.thinned && t.sets.like(operation) >= 0 ? card("Balance", percent(of("balance"), 1), "mean tile / slowest tile") : null,
      of("flops") ? card("Arithmetic", flops(of("flops")), plain(of("vertices")) + " vertices") : null),
    t.thinned && t.sets.like(operation) >= 0 ? note(LEFT_OUT) : sets.length ? waits(t, operation, sets) : note(kind === "call" || kind === "repeat" ? "A call is made of steps: choose one of them to see its tiles." : "Nothing of it runs on tiles."));
}

/** The line of the user's program, when the report holds it. @param {Timeline} t @param {number} operation */
function sourceLine(t, operation) {
  const { index } = t.context.source, file = t.line.operations.words("file").at(operation), line = t.line.operations.numbers("line")[operation];
  const number = (index.sources ?? []).indexOf(file), node = make("pre", { class: "source-line", hidden: true });
  if (number >= 0 && line > 0) {
    t.context.source.json("source/" + number).then(({ text }) => {
      const code = text.split("\n")[line - 1]?.trim();
      if (code) { node.textContent = `${line}  ${code}`; node.hidden = false; }
    }, () => {}); // its file and line are said above
  }
  return node;
}

/** Work of each tile, and why the chosen one waits. @param {Timeline} t @param {number} operation @param {number[]} sets */
function waits(t, operation, sets) {
  const tiles = t.summary.tiles, { state } = t.context, numbers = (/** @type {string} */ name) => t.sets.table.numbers(name);
  const work = new Float64Array(tiles), received = new Float64Array(tiles), exchange = new Float64Array(tiles);
  let only = -1; // a row of `sets`, or all of them
  let sorted = false;
  /** @type {Int32Array} */
  let order = new Int32Array(0);
  let slowest = 0, mean = 0, lasts = 0;
  const gather = () => {
    work.fill(0); received.fill(0); exchange.fill(0);
    slowest = lasts = 0;
    for (const row of only < 0 ? sets : [only]) {
      t.columns.add(numbers("work")[row], work);
      const column = numbers("received")[row], most = t.columns.most(column).most, links = numbers("links")[row];
      t.columns.add(column, received);
      if (most) t.columns.add(column, exchange, (numbers("exchange")[row] + links) / most);
      slowest += numbers("compute")[row];
      lasts += numbers("exchange")[row] + links;
    }
    mean = work.reduce((sum, value) => sum + value, 0) / tiles;
    order = Int32Array.from({ length: tiles }, (_, i) => i);
    if (sorted) order.sort((a, b) => work[b] + exchange[b] - work[a] - exchange[a] || a - b);
  };
  gather();
  const chosen = () => { const { tile } = state.selection; return tile !== null && tile < tiles ? tile : least(work); };
  const place = (/** @type {number} */ x, /** @type {number} */ width) => Math.max(0, Math.min(tiles - 1, Math.floor((x * tiles) / width)));
  const chart = new Chart({
    height: 170,
    label: "Cycles in which each tile exchanges and works in the chosen step",
    draw: (g, width, height) => {
      const top = Math.max(1, slowest + lasts) * 1.12, scale = (height - 2) / top;
      g.fillStyle = colour("idle");
      g.fillRect(0, 0, width, height);
      for (const [name, values, below] of /** @type {[string, Float64Array, Float64Array | null][]} */ ([["exchange", exchange, null], ["compute", work, exchange]])) {
        g.fillStyle = fill(g, name, /** @type {any} */ (HATCH)[name]);
        for (let x = 0; x < width; x++) {
          const [first, after] = onPixel(x, width, tiles);
          let most = order[first];
          for (let i = first; i < after; i++) if (exchange[order[i]] + work[order[i]] > exchange[most] + work[most]) most = order[i];
          const base = below ? below[most] * scale : 0, tall = values[most] * scale;
          if (tall) g.fillRect(x, height - base - tall, 1, tall);
        }
      }
      const at = sorted ? order.indexOf(chosen()) : chosen(), x = ((at + 0.5) * width) / tiles;
      g.fillStyle = colour("paper");
      g.fillRect(x - 2, 0, 4, height);
      g.fillStyle = colour("ink");
      g.fillRect(x - 1, 0, 2, height);
      const text = "tile " + chosen();
      tag(g, text, x + 8 + g.measureText(text).width > width ? x - 10 - g.measureText(text).width : x + 5, 2, "ink");
      limitLine(g, width, height - (slowest + lasts) * scale, `all wait until here: ${plain(slowest + lasts)} cycles`);
    },
    read: (x, _y, width) => {
      const tile = order[place(x, width)];
      return `tile ${tile}: works ${plain(work[tile])}, receives ${bytes(received[tile])}, waits ${plain(slowest - work[tile] + lasts - exchange[tile])} of ${plain(slowest + lasts)} cycles`;
    },
    pick: (x, _y, width) => state.set({ tile: order[place(x, width)] }),
    rows: () => {
      const number = (/** @type {string} */ name, /** @type {Float64Array} */ values, /** @type {(v: number) => string} */ show) => ({ name, width: "130px", text: (/** @type {number} */ i) => show(values[i]), order: (/** @type {number} */ a, /** @type {number} */ b) => values[a] - values[b] });
      const grid = new Grid({ label: "Tiles in the chosen step", height: 240, columns: [{ name: "tile", width: "90px", text: String, order: (a, b) => a - b }, number("works", work, plain), number("exchanges", exchange, plain), number("receives", received, bytes)], chosen: (tile) => state.set({ tile }) });
      grid.fill(Int32Array.from({ length: tiles }, (_, i) => i));
      return grid.node;
    },
  });
  const holder = make("div");
  const why = () => holder.replaceChildren(...reasons(t, operation, sets, chosen(), state.selection.tile === null));
  const fresh = () => { gather(); chart.repaint(); };
  t.whenTile(holder, () => { why(); chart.repaint(); });
  why();
  const choice = select("Compute set", [[-1, "All compute sets"], ...sets.map((row, i) => /** @type {[number, string]} */ ([row, `${i + 1}: ${t.sets.table.words("vertex").at(row)}`]))], -1,
    (row) => { only = Number(row); fresh(); });
  const sort = make("button", { "aria-pressed": "false", onclick: () => { sorted = !sorted; sort.setAttribute("aria-pressed", String(sorted)); fresh(); } }, "In order of work");
  return make("div", null,
    make("div", { class: "tools" }, make("b", null, "Work of each tile"), sets.length > 1 ? choice : null, sort,
      note(`mean ${plain(mean)} of ${plain(slowest)} cycles; of the tiles on a pixel the busiest is drawn`)),
    chart.node, legend([["exchanges", "exchange", HATCH.exchange], ["works", "compute", HATCH.compute], ["waits", "idle", 0]]), holder);
}

/** @param {Float64Array} values */
function least(values) {
  let found = 0;
  for (let i = 1; i < values.length; i++) if (values[i] < values[found]) found = i;
  return found;
}

/** Why a tile waits in a step, set by set. @param {Timeline} t @param {number} operation @param {number[]} sets @param {number} tile
 * @param {boolean} picked by the page and not by a person @returns {Node[]} */
function reasons(t, operation, sets, tile, picked) {
  const { table: all } = t.sets, numbers = (/** @type {string} */ name) => all.numbers(name);
  const rows = sets.map((row, i) => {
    const slowest = t.columns.most(numbers("work")[row]), busiest = t.columns.most(numbers("received")[row]);
    const works = t.columns.at(numbers("work")[row], tile), compute = numbers("compute")[row];
    return { place: i + 1, vertex: all.words("vertex").at(row), sync: numbers("sync")[row], exchange: numbers("exchange")[row] + numbers("links")[row], receives: t.columns.at(numbers("received")[row], tile), busiest, works, compute, slowest,
      waits: Math.max(0, compute - works), balance: compute ? slowest.sum / t.summary.tiles / compute : 0 };
  });
  const sum = (/** @type {(row: any) => number} */ of) => rows.reduce((total, row) => total + of(row), 0);
  const compute = sum((r) => r.compute), works = sum((r) => r.works), waits = sum((r) => r.waits), exchange = sum((r) => r.exchange), sync = sum((r) => r.sync);
  const worst = [...rows].sort((a, b) => b.waits - a.waits)[0], moved = [...rows].sort((a, b) => b.exchange - a.exchange)[0];
  const charged = t.line.operations.numbers("cycles")[operation], shared = compute + exchange + sync - charged;
  const words = [
    `Tile ${tile} works ${plain(works)} of the ${plain(charged)} cycles of this step.`,
    waits ? `It waits ${plain(waits)} cycles for slower tiles${worst.waits ? `, most of them for tile ${worst.slowest.tile}, whose ${worst.vertex} vertices take ${plain(worst.compute)} cycles where its own take ${plain(worst.works)}` : ""}.` : "No tile works longer: the others wait for it.",
    exchange ? `All tiles exchange for ${plain(exchange)} cycles: ${moved.busiest.tile === tile ? "it is the one that receives most" : `tile ${moved.busiest.tile} receives most, ${bytes(moved.busiest.most)}; this one ${bytes(moved.receives)}`}.` : "Nothing is exchanged.",
    `The syncs take ${plain(sync)} cycles.`,
    shared >= 1 ? `Steps that start together with this one share ${plain(shared)} of these cycles, which are charged to them.` : "",
  ];
  const number = (/** @type {string} */ name, /** @type {(row: any) => number} */ value, /** @type {(v: number) => string} */ show = plain) => ({ name, value, show });
  const from = make("div");
  t.traffic().then(({ table, by }) => { const said = senders(t, operation, tile, table, by); if (said) from.append(said); }, (error) => from.append(problem(error)));
  return [
    make("h3", null, `Why tile ${tile} waits`, picked ? make("small", null, " (the one that works least; click another)") : null),
    make("p", null, words.join(" ").trim()),
    table([number("set", (r) => r.place), { name: "vertex", value: (r) => r.vertex, words: true }, number("sync", (r) => r.sync), number("exchange", (r) => r.exchange), number("it receives", (r) => r.receives, bytes),
      { name: "most is received by", value: (r) => (r.busiest.most ? `tile ${r.busiest.tile}: ${bytes(r.busiest.most)}` : "–"), words: true }, number("it works", (r) => r.works), number("it waits", (r) => r.waits),
      { name: "for", value: (r) => (r.waits ? `tile ${r.slowest.tile}: ${plain(r.compute)}` : "–"), words: true }, number("balance", (r) => r.balance, (v) => percent(v, 1))], rows, `Why tile ${tile} waits, set by set`),
    from,
  ];
}

/** Who sends to the tiles around one. @param {Timeline} t @param {number} operation @param {number} tile
 * @param {import("../../packet.js").Table} traffic @param {import("../../tiles.js").RowsBy} by operation */
function senders(t, operation, tile, traffic, by) {
  const { summary } = t, groups = Math.min(32, summary.tiles), group = Math.floor((tile * groups) / summary.tiles);
  const of = (/** @type {string} */ name) => traffic.numbers(name);
  const found = [...by.of(t.sets.like(operation))].filter((i) => of("target_group")[i] === group && (of("target_ipu")[i] === t.line.operations.numbers("ipu")[operation]))
    .map((i) => ({ ipu: of("source_ipu")[i], group: of("source_group")[i], bytes: of("bytes")[i], links: of("links")[i] }));
  const own = `tiles ${tilesOf(group, groups, summary.tiles)}`;
  if (!found.length) return null;
  found.sort((a, b) => b.bytes - a.bytes);
  const all = found.reduce((sum, row) => sum + row.bytes, 0);
  return note(`Its neighbours, ${own}, receive ${bytes(all)}: ` + found.slice(0, 3).map((row) => `${bytes(row.bytes)} from tiles ${tilesOf(row.group, groups, summary.tiles)}${t.ipus > 1 ? " of IPU " + row.ipu : ""}${row.links ? " over links" : ""}`).join(", ") + (found.length > 3 ? ` and ${found.length - 3} more groups.` : "."));
}

/** The tiles of a group, as `46–91`. @param {number} group @param {number} groups @param {number} tiles */
export function tilesOf(group, groups, tiles) {
  const first = Math.ceil((group * tiles) / groups), last = Math.ceil(((group + 1) * tiles) / groups) - 1;
  return first === last ? String(first) : `${first}–${last}`;
}
