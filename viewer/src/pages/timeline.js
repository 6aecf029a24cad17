// What does each tile do, and when: the whole program, the part in sight, its tiles, and the chosen step.

import { colour, legend } from "../chart.js";
import { heading, make, note, say, select } from "../dom.js";
import { plain, seconds, where } from "../format.js";
import { Line, PARTS, at } from "../moments.js";
import { leftOut } from "../packet.js";
import { numbersOf, viewOf, viewWith } from "../state.js";
import { RowsBy, Sets, TileColumns } from "../tiles.js";
import { HATCH, lanes, overview } from "./timeline/lanes.js";
import { pipelines } from "./timeline/pipeline.js";
import { step } from "./timeline/step.js";
import { tileRaster } from "./timeline/tiles.js";
import { Window } from "./timeline/window.js";

/**
 * @typedef {import("../main.js").Selection} Selection
 * @typedef {import("../packet.js").Table} Table
 * @typedef {import("./timeline/raster.js").How} How
 */

const NEEDS = ["operations", "moments", "sets", "columns", "pipeline"];
const SOON = 200; // ms until a move is in the address

/** A table of which a picture in brief needs nothing. @type {Table} */
const NONE = { count: 0, header: {}, names: [], has: () => false, numbers: () => new Int32Array(0), words: () => { throw new Error("This is in brief."); } };

/** What the charts of this page share. */
export class Timeline {
  /** @param {import("../main.js").Context} context @param {any} summary @param {Record<string, Table>} tables */
  constructor(context, summary, tables) {
    this.context = context;
    this.summary = summary;
    this.line = new Line(tables.moments, tables.operations, summary.cycles, tables.folds);
    this.sets = new Sets(tables.sets, tables.operations);
    this.columns = new TileColumns(tables.columns);
    /** In brief, the tiles of IPU 0 in each moment. @type {Table | null} */
    this.bins = tables.raster ?? null;
    /** Whether a saved page had no room for single tiles. */
    this.thinned = [tables.columns, tables.sets].some((table) => Boolean(table.header.thinned));
    /** @type {Promise<{table: Table, by: RowsBy}> | null} */
    this.sent = null;
    /** What of the whole program falls on each pixel (lanes.js). @type {{key: string, lanes: Float32Array[], all: Float32Array[]} | null} */
    this.whole = null;
    this.ipus = 1;
    for (let i = 0; i < this.line.count; i++) this.ipus = Math.max(this.ipus, this.line.ipu[i] + 1);
    /** @type {import("../chart.js").Chart[]} */
    this.charts = [];
    /** @type {[Node, () => void][]} */
    this.movers = [];
    /** @type {[Node, () => void][]} */
    this.tileReaders = [];
    /** @type {[number, number] | null} a range that is being drawn */
    this.brushed = null;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    this.told = () => {}; // the tools say what is in sight
    this.view = "";
    this.window = new Window(this.line.axes.folded, null);
    this.how = /** @type {How} */ ("most");
    /** @type {[number, number]} the first tile in sight and the one after the last */
    this.tiles = [0, summary.tiles];
    this.read(context.state.selection);
  }

  /** Take what the address says. @param {Selection} selection */
  read(selection) {
    const view = viewOf(selection), { line, summary } = this, tiles = numbersOf(selection, "tiles", 2), how = view.get("how") ?? "", axis = view.get("axis") ?? "";
    this.view = selection.view;
    this.window = new Window(line.axes[Object.hasOwn(line.axes, axis) ? /** @type {import("../moments.js").AxisName} */ (axis) : "folded"], numbersOf(selection, "window", 2));
    this.how = /** @type {How} */ (["mean", "least"].includes(how) ? how : "most");
    this.tiles = tiles && tiles[0] < tiles[1] && tiles[1] <= summary.tiles ? [tiles[0], tiles[1]] : [0, summary.tiles];
  }

  /** Cycles of the whole program in a part of a moment. @param {string} name */
  by(name) {
    return this.summary.cycles_by[name] ?? 0;
  }

  get ipu() {
    const { ipu } = this.context.state.selection;
    return ipu !== null && ipu < this.ipus ? ipu : 0;
  }

  /** Who sends to whom, and its rows by operation: nothing that is drawn needs it, so that it is fetched when a step is chosen. */
  traffic() {
    return (this.sent ??= this.context.table("traffic").then((table) => ({ table, by: new RowsBy(table.numbers("operation")) })));
  }

  // ---- what is in sight

  /** @param {number} from @param {number} to */
  look(from, to) {
    this.window.set(from, to);
    this.#moved();
  }
  /** @param {number} x @param {number} factor @param {number} width */
  zoom(x, factor, width) {
    this.window.zoom(x, factor, width);
    this.#moved();
  }
  /** @param {number} pixels @param {number} width */
  pan(pixels, width) {
    this.window.pan(pixels, width);
    this.#moved();
  }
  /** @param {import("../moments.js").AxisName} name */
  along(name) {
    this.window = this.window.along(this.line.axes[name]);
    this.#moved();
  }
  /** @param {number} first @param {number} span */
  showTiles(first, span) {
    const { tiles } = this.summary, from = Math.round(Math.max(0, Math.min(tiles - span, first)));
    this.tiles = [from, from + span];
    this.#moved();
  }
  /** @param {How} how */
  draw(how) {
    this.how = how;
    this.#moved();
  }

  #moved() {
    this.repaint();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#write(), SOON);
  }

  #write() {
    const { window, tiles, summary } = this, digits = window.axis.name === "moments" ? 2 : 0;
    this.movers = this.movers.filter(([node]) => node.isConnected);
    for (const [, moved] of this.movers) moved();
    this.view = viewWith(this.context.state.selection, {
      window: window.whole ? null : `${window.from.toFixed(digits)}-${window.to.toFixed(digits)}`,
      axis: window.axis.name === "folded" ? null : window.axis.name,
      how: this.how === "most" ? null : this.how,
      tiles: tiles[0] === 0 && tiles[1] === summary.tiles ? null : tiles.join("-"),
    });
    this.context.state.set({ view: this.view }, true);
    this.told();
  }

  /** Call something when what is in sight has changed, while the node is on the page. @param {Node} node @param {() => void} then */
  whenMoved(node, then) {
    this.movers.push([node, then]);
  }
  /** … when another tile is chosen. @param {Node} node @param {() => void} then */
  whenTile(node, then) {
    this.tileReaders.push([node, then]);
  }

  repaint() {
    for (const chart of this.charts) chart.repaint();
    this.told();
  }

  // ---- what is chosen

  /** The chosen moment, or −1. */
  chosen() {
    const { selection } = this.context.state, { operation } = selection, moment = numbersOf(selection, "moment", 1)?.[0] ?? -1;
    if (operation === null) return -1;
    const { line } = this, known = moment >= 0 && moment < line.count && line.operation[moment] >= 0;
    return known && line.operations.words("key").at(line.operation[moment]) === operation ? moment : line.first(operation);
  }

  /** @param {number} moment @param {number} [tile] */
  choose(moment, tile) {
    const { line, context } = this, operation = line.operation[moment] ?? -1;
    /** @type {Partial<Selection>} */
    const changes = tile === undefined ? {} : { tile };
    if (operation >= 0) {
      changes.operation = line.operations.words("key").at(operation);
      changes.view = viewWith(context.state.selection, { moment: line.first(changes.operation) === moment ? null : moment });
      if (line.ipu[moment] >= 0 && this.ipus > 1) changes.ipu = line.ipu[moment];
    }
    if (changes.view !== undefined) this.view = changes.view; // the window stays as it is
    context.state.set(changes);
    say(this.describe(moment));
  }

  /** @param {number} from a moment @param {number} to @param {boolean} done */
  brush(from, to, done) {
    this.brushed = done ? null : [from, to];
    if (done) this.context.state.set({ from, to });
    this.repaint();
  }

  /** What keys do in any of the charts. @param {string} key @param {number} position */
  key(key, position) {
    const { line, window } = this, { from, to } = this.context.state.selection, here = at(window.axis, position);
    if (key === "j" || key === "k") {
      const by = key === "j" ? 1 : -1;
      let next = this.chosen() < 0 ? here - by : this.chosen();
      do next += by; while (next >= 0 && next < line.count && (line.operation[next] < 0 || !line.length(next)));
      if (next < 0 || next >= line.count) return true;
      const { edges } = window.axis, span = window.to - window.from;
      if (edges[next] < window.from || edges[next + 1] > window.to) this.look(edges[next] - span / 4, edges[next] + (3 * span) / 4);
      this.choose(next);
    } else if (key === "[" || key === "]") {
      const range = key === "[" ? [here, Math.max(here, to ?? here)] : [Math.min(here, from ?? here), here];
      this.brush(range[0], range[1], true);
      say(`Moments ${range[0]} to ${range[1]} are chosen`);
    } else if (key === "f") this.fit();
    else if (key === "0") this.look(0, window.end);
    else return false;
    return true;
  }

  /** Show what is chosen: the range, else the moment. */
  fit() {
    const { from, to } = this.context.state.selection, { edges } = this.window.axis, moment = this.chosen();
    const last = this.line.count - 1;
    if (from !== null && to !== null) this.look(edges[Math.min(from, last)], edges[Math.min(to, last) + 1]);
    else if (moment >= 0) {
      const long = Math.max(edges[moment + 1] - edges[moment], (edges[this.line.count] - edges[0]) * 1e-9);
      this.look(edges[moment] - long / 2, edges[moment + 1] + long / 2);
    }
  }

  // ---- in words

  /** What is at a position: a moment, or the turns of a loop that are not drawn. @param {number} position */
  say(position) {
    const { line, window } = this, moment = at(window.axis, position);
    if (position > line.end(window.axis, moment) && line.length(moment)) {
      const fold = line.folds.filter((f) => f.exit === moment + 1 || (f.exit > moment && position < window.axis.edges[f.exit] && f.enter <= moment)).pop();
      const count = fold ? line.operations.numbers("count")[line.operation[fold.enter]] : 0;
      if (fold && count > 1) return `${this.foldName(fold)}: ${plain(count - 1)} more turns, like the first`;
    }
    return this.describe(moment);
  }

  /** @param {number} x @param {number} width */
  momentAt(x, width) {
    return at(this.window.axis, this.window.position(x, width));
  }

  /** @param {number} moment */
  momentName(moment) {
    const operation = this.line.operation[moment] ?? -1, { operations } = this.line;
    if (operation < 0) return "";
    const count = operations.numbers("count")[operation], callee = operations.words("callee").at(operation);
    return (operations.words("name").at(operation) || callee || operations.words("kind").at(operation)) + (count > 1 ? ` × ${plain(count)}` : "");
  }

  /** @param {import("../moments.js").Fold} fold */
  foldName(fold) {
    if (fold.name !== undefined) return fold.name;
    const operation = this.line.operation[fold.enter], { operations } = this.line, count = operations.numbers("count")[operation];
    return (operations.words("callee").at(operation) || operations.words("name").at(operation)) + (count > 1 ? ` × ${plain(count)}` : "");
  }

  /** File, line and module. @param {number} operation */
  place(operation) {
    const { operations } = this.line;
    return operation < 0 ? "" : where(operations.words("file").at(operation), operations.numbers("line")[operation], operations.words("layer").at(operation));
  }

  /** @param {number} moment */
  describe(moment) {
    const { line, summary } = this, operation = line.operation[moment] ?? -1;
    if (operation < 0) return "";
    const parts = PARTS.map((name, k) => [name, line.parts[k][moment]]).filter(([, v]) => v).map(([name, v]) => `${name} ${plain(/** @type {number} */ (v))}`);
    const whole = line.runsOthers(operation) ? ` in all ${plain(line.operations.numbers("cycles")[operation])} cycles` : "";
    return [`${this.momentName(moment)} ${line.operations.words("types").at(operation)}`.trim() + whole,
      `${this.ipus > 1 && line.ipu[moment] >= 0 ? `IPU ${line.ipu[moment]}, ` : ""}moment ${plain(moment)}, from cycle ${plain(line.start[moment])}, ${seconds(line.start[moment] / summary.clock_hz)}`,
      parts.length ? parts.join(", ") : "", this.place(operation)].filter(Boolean).join("\n");
  }

  /** The chosen range over a chart. @param {CanvasRenderingContext2D} g @param {(position: number) => number} pixel @param {number} height */
  drawRange(g, pixel, height) {
    const { from, to } = this.context.state.selection, range = this.brushed ?? (from !== null && to !== null ? [from, to] : null);
    if (!range || range[0] >= this.line.count) return;
    const { edges } = this.window.axis, a = pixel(edges[range[0]]), b = pixel(edges[Math.min(this.line.count - 1, range[1]) + 1]);
    g.fillStyle = colour("focus");
    g.globalAlpha = 0.16;
    g.fillRect(a, 0, b - a, height);
    g.globalAlpha = 1;
    g.fillRect(a - 1, 0, 2, height);
    g.fillRect(b - 1, 0, 2, height);
  }
}

/** @param {Timeline} t */
function tools(t) {
  const { context, summary } = t, { state } = context;
  const button = (/** @type {string} */ text, /** @type {string} */ title, /** @type {() => void} */ click) => make("button", { onclick: click, title }, text);
  const sight = make("span", { class: "note", "aria-live": "off" }), range = make("span", { class: "note" });
  const all = button("Show all", "The whole program (0)", () => t.look(0, t.window.end)), fit = button("Show chosen", "What is chosen (F)", () => t.fit());
  const axis = select("What a width means", /** @type {[string, string][]} */ ([["folded", t.line.turns ? "Time, loops short" : "Time"], ["cycles", "Time, all of it"], ["moments", "Each step alike"]]).filter(([name]) => t.line.turns || name !== "cycles"),
    t.window.axis.name, (value) => t.along(/** @type {import("../moments.js").AxisName} */ (value)));
  const ipu = t.ipus > 1 ? select("IPU", Array.from({ length: t.ipus }, (_, i) => [i, "IPU " + i]), t.ipu, (value) => state.set({ ipu: Number(value) })) : null;
  const how = select("Of what is on a pixel", [["most", "The most on a pixel"], ["mean", "The mean on a pixel"], ["least", "The least on a pixel"]], t.how, (value) => t.draw(/** @type {How} */ (value)));
  const tiles = button("All tiles", "Every tile (Shift and S)", () => t.showTiles(0, summary.tiles));
  t.told = () => {
    const { window, line } = t, [first, last] = context.brief ? [0, line.whole - 1] : window.moments(), { from, to } = state.selection;
    const clock = (/** @type {number} */ cycle) => seconds(cycle / summary.clock_hz);
    const ends = [line.cycle(window.axis, window.from), line.cycle(window.axis, window.to)];
    sight.textContent = `Cycles ${plain(ends[0])} to ${plain(ends[1])} of ${plain(summary.cycles)}, ${clock(ends[1] - ends[0])} of ${seconds(summary.seconds)}; moments ${plain(first)} to ${plain(last)} of ${plain(line.whole)}`;
    range.textContent = from !== null && to !== null ? `Chosen for all pages: moments ${plain(from)} to ${plain(to)}` : "Drag to choose a range for all pages.";
    all.toggleAttribute("disabled", window.whole);
    fit.toggleAttribute("disabled", from === null && t.chosen() < 0);
    tiles.toggleAttribute("disabled", t.tiles[1] - t.tiles[0] === summary.tiles);
    axis.value = window.axis.name;
    how.value = t.how;
    if (ipu) ipu.value = String(t.ipu);
  };
  const middle = (/** @type {number} */ factor) => t.zoom(0.5, factor, 1);
  return {
    window: make("div", { class: "tools" }, all, fit, button("+", "Closer (W)", () => middle(2)), button("−", "Farther (S)", () => middle(0.5)), axis, sight),
    raster: make("div", { class: "tools" }, ipu, how, tiles, range),
  };
}

/** @type {import("../main.js").Page} */
export const timeline = {
  name: "timeline",
  title: "Timeline",
  keep: true,
  needs: NEEDS,
  brief: { moments: "moments", folds: "folds", raster: "raster" },
  async show(context) {
    const names = context.brief ? ["moments", "folds", "raster"] : NEEDS;
    const [summary, ...found] = await Promise.all([context.json("summary"), ...names.map((name) => context.table(name))]);
    /** @type {Record<string, Table>} */
    const tables = { ...(context.brief ? { operations: NONE, sets: NONE, columns: NONE } : {}), ...Object.fromEntries(names.map((name, i) => [name, found[i]])) }, t = new Timeline(context, summary, tables);
    if (!t.line.count) return { node: make("section", null, note(leftOut("the program over time"))) };
    const { line } = t, strip = overview(t), inSight = lanes(t), tiles = t.sets.table.count || t.thinned || t.bins ? tileRaster(t) : null;
    t.charts = [strip, inSight, ...(tiles ? [tiles] : [])];
    let shown = t.chosen();
    const bar = tools(t), chosen = make("div", null, step(t));
    const entries = /** @type {[string, string, number][]} */ (PARTS.filter((name) => line.has(name)).map((name) => [name, name, HATCH[name]]));
    t.told();
    return {
      node: make("section", null,
        heading("The whole program, and what of it is in sight"), strip.node, bar.window, inSight.node,
        legend([...entries, ["waits", "idle", 0]]),
        ...((context.brief ? tables.moments.header.pipelined : tables.pipeline.count) ? [note("Of a pipelined loop one turn is drawn as if it ran alone. In truth the stages of several turns overlap: see the pipeline at the end of this page.")] : []),
        note("Ctrl and wheel or W S zoom, Shift and drag or A D move, drag or [ ] choose a range, J K go from step to step. Narrow steps: the height of a colour is its share."),
        heading(t.ipus > 1 ? "Tiles of one IPU" : "Tiles"),
        ...(tiles ? [bar.raster, tiles.node, legend([["exchanges", "exchange", 0], ["works", "compute", 0], ["waits", "idle", 0], .../** @type {const} */ (["sync", "links", "host", "overhead"]).filter((name) => line.has(name)).map((name) => /** @type {[string, string, number]} */ ([name, name, 0]))])] : [note("Nothing of this program runs on tiles.")]),
        chosen, ...(context.brief ? [make("div", { "aria-busy": "true", "data-later": true })] : pipelines(t, tables.pipeline))),
      update: (now, before) => {
        if (now.view !== t.view) t.read(now);
        if (t.chosen() !== shown) {
          shown = t.chosen();
          t.tileReaders = [];
          chosen.replaceChildren(step(t));
        } else if (now.tile !== before.tile) for (const [, then] of t.tileReaders) then();
        t.repaint();
        return true;
      },
      close: () => clearTimeout(t.timer),
    };
  },
};
