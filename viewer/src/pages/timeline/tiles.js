// What each tile does in what is in sight: the raster with its rulers, and its table.

import { Chart, colour, tag } from "../../chart.js";
import { say } from "../../dom.js";
import { percent, plain } from "../../format.js";
import { Grid } from "../../grid.js";
import { leftOut } from "../../packet.js";
import { MOST, Raster } from "./raster.js";

/** @typedef {import("../timeline.js").Timeline} Timeline */

/** What a saved page says that had no room for them. */
export const LEFT_OUT = leftOut("the numbers of single tiles");

/** The raster of the chosen IPU. @param {Timeline} t */
export function tileRaster(t) {
  const { state } = t.context, { line, summary } = t;
  const tiles = summary.tiles, height = Math.max(96, Math.min(368, tiles * 24));
  const raster = new Raster(line, t.sets, t.columns, tiles);
  /** @type {{name: string, stored: import("./raster.js").Stored} | null} */
  let held = null;
  const chosen = () => (state.selection.tile !== null && state.selection.tile < tiles ? state.selection.tile : null);
  const y = (/** @type {number} */ tile) => { const [first, after] = t.tiles; return ((tile + 0.5 - first) * height) / (after - first); };
  const tileAt = (/** @type {number} */ at) => { const [first, after] = t.tiles; return Math.max(first, Math.min(after - 1, first + Math.floor((at * (after - first)) / height))); };
  /** What is to be drawn from, where the moments in sight are too many. */
  const stored = () => {
    if (t.bins) return { level: 0, table: t.bins };
    const { window: { axis, from, to }, ipu } = t, [first, after] = raster.inSight({ axis, from, to, ipu });
    if (after - first <= MOST && !t.thinned) return null;
    const levels = /** @type {[number, number][]} */ (summary.rasters ?? []).filter(([level, of]) => of === ipu && line.on(ipu).length / 16 ** level * tiles / 4 ** (level - 1) < 4e6).map(([level]) => level);
    if (!levels.length) return t.thinned ? undefined : null;
    const level = Math.min(...levels), name = `raster/${level}/${ipu}`;
    if (held?.name === name) return held.stored;
    chart.canvas.setAttribute("aria-busy", "true");
    t.context.table(name).then((table) => { held = { name, stored: { level, table } }; chart.repaint(); }, (error) => say(String(error.message)))
      .finally(() => chart.canvas.removeAttribute("aria-busy"));
    return undefined;
  };
  /** @param {CanvasRenderingContext2D} g @param {number} width */
  const marks = (g, width) => {
    const { window } = t, moment = t.chosen();
    t.drawRange(g, (position) => window.pixel(position, width), height);
    if (moment >= 0 && line.length(moment)) {
      for (const edge of [window.axis.edges[moment], line.end(window.axis, moment)]) {
        const x = window.pixel(edge, width);
        g.fillStyle = colour("paper");
        g.fillRect(x - 1.5, 0, 3, height);
        g.fillStyle = colour("ink");
        g.fillRect(x - 0.5, 0, 1, height);
      }
    }
    const tile = chosen(), [first, after] = t.tiles;
    if (tile !== null && tile >= first && tile < after) {
      g.fillStyle = colour("paper");
      g.fillRect(0, y(tile) - 1.5, width, 3);
      g.fillStyle = colour("ink");
      g.fillRect(0, y(tile) - 0.5, width, 1);
      tag(g, "tile " + tile, 4, Math.max(0, Math.min(height - 14, y(tile) - 16)), "ink");
    }
    if (tile === null || y(tile) > 34) tag(g, "tile " + first, 4, 2, "soft");
    if (tile === null || y(tile) < height - 34) tag(g, "tile " + (after - 1), 4, height - 15, "soft");
  };
  const chart = new Chart({
    height,
    label: "Tiles from top to bottom over time from left to right: exchange, compute, and what is between, in which they wait",
    draw: (g, width) => {
      const { window, how } = t, scale = devicePixelRatio || 1;
      const wanted = { axis: window.axis, from: window.from, to: window.to, width: Math.max(1, Math.round(width * scale)), height: Math.max(1, Math.round(height * scale)), ipu: t.ipu, tiles: t.tiles, how };
      const from = stored();
      if (from !== undefined) g.putImageData(raster.paint(wanted, from), 0, 0);
      else tag(g, t.thinned && !held ? LEFT_OUT : "Fetching the bins of this IPU …", 60, height / 2, "soft");
      marks(g, width);
    },
    read: (x, at, width) => {
      const moment = t.momentAt(x, width), tile = tileAt(at), operation = line.operation[moment];
      const head = `tile ${tile}${t.ipus > 1 ? " of IPU " + t.ipu : ""}\n`;
      if (operation < 0 || line.ipu[moment] !== t.ipu || !t.sets.has(operation)) return head + (line.ipu[moment] === t.ipu || t.ipus === 1 ? "" : "waits for other IPUs\n") + t.describe(moment);
      if (t.thinned) return head + t.describe(moment);
      const whole = line.length(moment), works = raster.tileCycles(operation, "work")[tile], exchanges = raster.tileCycles(operation, "exchange")[tile];
      return `${head}works ${plain(works)} (${percent(works, whole)}), exchanges ${plain(exchanges)} of ${plain(whole)} cycles\n` + t.describe(moment);
    },
    pick: (x, at, width) => t.choose(t.momentAt(x, width), tileAt(at)),
    drag: (a, b, width, done) => t.brush(t.momentAt(a, width), t.momentAt(b, width), done),
    zoom: (x, factor, width) => t.zoom(x, factor, width),
    pan: (pixels, width) => t.pan(pixels, width),
    level: () => y(chosen() ?? t.tiles[0]),
    keys: (key, x, width) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[key], [first, after] = t.tiles, tile = chosen() ?? first;
      if (step) {
        const next = Math.max(0, Math.min(tiles - 1, tile + step)), span = after - first;
        if (next < first || next >= after) t.showTiles(Math.max(0, next - span / 2), span);
        state.set({ tile: next }, true);
        say(chart.options.read?.(x, y(next), width, height) ?? "");
      } else if (key === "W" || key === "S") {
        const span = Math.max(16, Math.min(tiles, Math.round((after - first) * (key === "W" ? 0.5 : 2))));
        t.showTiles(tile - span / 2, span);
        say(`Tiles ${t.tiles[0]} to ${t.tiles[1] - 1}`);
      } else return t.key(key, t.window.position(x, width));
      return true;
    },
    rows: t.thinned ? undefined : () => tileTable(t, raster),
  });
  stored(); // to be there when it is drawn
  return chart;
}

/** What each tile did in the moments in sight. @param {Timeline} t @param {Raster} raster */
function tileTable(t, raster) {
  const { line, summary } = t, work = new Float64Array(summary.tiles), exchange = new Float64Array(summary.tiles);
  let whole = 0;
  const number = (/** @type {string} */ name, /** @type {(tile: number) => number} */ value, /** @type {(v: number) => string} */ show = plain) =>
    ({ name, width: "130px", text: (/** @type {number} */ i) => show(value(i)), value });
  const grid = new Grid({ label: "Tiles in the moments in sight", height: 280, columns: [number("tile", (i) => i), number("works", (i) => work[i]), number("exchanges", (i) => exchange[i]),
    number("neither", (i) => whole - work[i] - exchange[i]), number("works, share", (i) => work[i], (v) => percent(v, whole))], chosen: (tile) => t.context.state.set({ tile }, true) });
  const refill = () => {
    const items = line.on(t.ipu), [first, last] = t.window.moments();
    /** @type {Map<number, number>} how often each operation is in sight */
    const seen = new Map();
    whole = 0;
    for (const i of items) if (i >= first && i <= last) { whole += line.length(i); seen.set(line.operation[i], (seen.get(line.operation[i]) ?? 0) + 1); }
    work.fill(0);
    exchange.fill(0);
    for (const [operation, times] of seen) {
      raster.tileCycles(operation, "work").forEach((cycles, tile) => { work[tile] += times * cycles; });
      raster.tileCycles(operation, "exchange").forEach((cycles, tile) => { exchange[tile] += times * cycles; });
    }
    grid.fill(Int32Array.from({ length: summary.tiles }, (_, i) => i));
  };
  refill();
  t.whenMoved(grid.node, refill);
  return grid.node;
}
