// When is memory short, and who takes it: bytes over the program, and the lives of tensors.

import "./memory.css";
import { legend } from "../chart.js";
import { card, drawn, heading, make, note, problem, toggle } from "../dom.js";
import { bytes, cycles, many, percent, plain, where } from "../format.js";
import { whole } from "../packet.js";
import { encoded, numbersOf, viewOf, viewWith } from "../state.js";
import { areaChart } from "../memory/area.js";
import { inOrder, look } from "../memory/categories.js";
import { MomentLine } from "../memory/moments.js";
import { LEFT, livesGrid, RIGHT } from "../memory/lives.js";
import { Placed } from "../memory/placed.js";
import { size } from "../memory/tensor_grid.js";
import { choice, searchBox } from "../memory/tensor_list.js";
import { tail, Tensors } from "../memory/tensors.js";
import { refill } from "../memory/tools.js";

/** @typedef {import("../main.js").Context} Context */
/** @typedef {import("../state.js").Selection} Selection */
/** @typedef {import("../packet.js").Table} Table */

const TIGHTEST = 10; // rows

class LivenessPage {
  /** @param {Context} context @param {any} summary @param {Table | null} moments null: in brief @param {Table} liveness */
  constructor(context, summary, moments, liveness) {
    this.context = context;
    this.state = context.state;
    this.memory = summary.tile_memory;
    this.ipus = summary.ipus;
    this.line = new MomentLine(moments, liveness.count);
    this.max = liveness.numbers("max");
    this.mean = liveness.numbers("mean");
    this.kinds = inOrder(liveness.names.filter((name) => name !== "max" && name !== "mean")).map((name) => ({ name, values: liveness.numbers(name) })).filter(({ values }) => values.some((v) => v > 0));
    this.sum = liveness.has("sum") ? liveness.numbers("sum") : summed(liveness, this.kinds);
    this.peak = Math.min(this.memory.peak_moment, Math.max(0, liveness.count - 1));
    /** Moments over the limit. @type {number} */
    this.over = liveness.header.over ?? Float64Array.from(this.max).filter((most) => most > this.memory.limit).length;
    this.closed = false;
    /** @type {Tensors | null} */
    this.tensors = null;
    this.on = new Float64Array(0);
    this.listed = ""; // which tensors the list holds
    this.chart = areaChart({ line: this.line, kinds: this.kinds, sum: this.sum, max: this.max, mean: this.mean, limit: this.memory.limit, peak: this.peak,
      highest: () => this.#highest(), axis: () => this.axis(), range: () => this.range(), look: (range) => this.#look(range), chosen: () => this.chosen(),
      choose: (from, to, done) => this.state.set({ from, to }, !done), name: (moment) => this.name(moment) });
    this.tools = make("div", { class: "tools" });
    this.about = make("div", { "aria-live": "polite" });
    this.lives = make("div", { "aria-busy": "true", "data-later": true });
    this.tight = make("div");
    this.side = make("div");
    this.aligned = make("div", { class: "aligned", style: `grid-template-columns:${LEFT}px minmax(0,1fr);padding-right:${RIGHT}px` }, this.side, this.chart.node);
    const tile = this.ipus > 1 ? `tile ${this.memory.fullest_tile} of IPU ${this.memory.fullest_ipu}` : `tile ${this.memory.fullest_tile}`;
    this.node = make("section", null, this.#cards(tile), this.tools, heading(`Over the program, on ${tile}, the fullest`), this.aligned, this.about, this.lives, this.tight);
    this.#follow();
  }

  get selection() { return this.state.selection; }
  /** What the page keeps for itself in the address. @returns {Record<string, string>} */
  get options() { return Object.fromEntries(viewOf(this.selection)); }
  /** @returns {import("../memory/moments.js").Axis} */
  axis() { return this.options.axis === "cycles" ? "cycles" : "moments"; }
  /** @returns {[number, number]} */
  range() {
    const [a, b] = numbersOf(this.selection, "zoom", 2) ?? [0, 0], { count } = this.line;
    return a >= 0 && b > a && b <= count ? [a, b] : [0, Math.max(1, count)];
  }
  /** The first and the last moment that are chosen. @returns {[number, number] | null} */
  chosen() {
    const { from, to } = this.selection, last = this.line.count - 1;
    return from === null || from > last ? null : [from, Math.max(from, Math.min(to ?? from, last))];
  }
  /** The fullest of some moments. @param {[number, number]} moments */
  fullest([from, to]) {
    let most = from;
    for (let i = from; i <= to; i++) if (this.max[i] > this.max[most]) most = i;
    return most;
  }
  /** What runs at a moment. @param {number} moment */
  name(moment) {
    const row = this.line.operation[moment];
    if (!this.tensors || !(row >= 0)) return "";
    const { operations } = this.tensors;
    return [operations.words("name").at(row), where(operations.words("file").at(row), operations.numbers("line")[row], operations.words("layer").at(row))].filter(Boolean).join(" ");
  }
  /** @param {number} moment */
  key(moment) {
    const row = this.line.operation[moment];
    return this.tensors && row >= 0 ? this.tensors.operations.words("key").at(row) : null;
  }
  #highest() {
    return this.options.scale === "fullest" ? this.memory.max || 1 : Math.max(this.memory.limit, this.memory.max);
  }
  /** @param {Record<string, string | null>} changes */
  #option(changes) { this.state.set({ view: viewWith(this.selection, changes) }, true); }
  /** @param {[number, number]} range */
  #look([a, b]) { this.#option({ zoom: a === 0 && b === this.line.count ? null : `${a}-${b}` }); }

  /** @param {string} tile */
  #cards(tile) {
    const { memory: m, over } = this;
    return make("div", { class: "cards" },
      card("Peak", bytes(m.max), `of ${bytes(m.limit)}: ${percent(m.max, m.limit)}`, m.fits ? "" : "bad"),
      make("div", { class: "card" }, make("small", null, "When"), make("b", null, make("a", { href: encoded({ ...this.selection, from: this.peak, to: this.peak }) }, `moment ${this.peak}`)),
        make("small", null, `of ${plain(this.line.count)}, on `, make("a", { href: encoded({ ...this.selection, page: "memory", ipu: this.ipus > 1 ? m.fullest_ipu : null, tile: m.fullest_tile, from: null, to: null, view: "" }) }, tile))),
      card(m.fits ? "Room there" : "Over by", bytes(m.fits ? m.limit - m.max : m.gap), m.fits ? "at the peak" : "what must go at the peak", m.fits ? "good" : "bad"),
      card("Mean tile then", bytes(this.mean[this.peak] ?? 0), "over the tiles of that IPU"),
      card("Moments over the limit", plain(over), `of ${plain(this.line.count)}`, over ? "bad" : "good"));
  }

  #toolbar() {
    const { options } = this, chosen = this.chosen(), last = Math.max(0, this.line.count - 1);
    const moment = (/** @type {string} */ label, /** @type {number | undefined} */ value, /** @type {(moment: number) => Partial<Selection>} */ change) => {
      const box = /** @type {HTMLInputElement} */ (make("input", { type: "number", min: 0, max: last, value, "aria-label": label, style: "width:96px",
        onchange: () => { if (box.value !== "" && box.valueAsNumber >= 0) this.state.set(change(Math.min(last, Math.floor(box.valueAsNumber)))); } }));
      return box;
    };
    refill(this.tools,
      toggle("By moment", this.axis() === "moments", () => this.#option({ axis: null })), toggle("By cycles", this.axis() === "cycles", () => this.#option({ axis: "cycles" })),
      toggle(options.scale === "fullest" ? "Scale: the peak" : "Scale: the limit", options.scale === "fullest", () => this.#option({ scale: options.scale === "fullest" ? null : "fullest" })),
      make("label", null, "moments ", moment("First moment", chosen?.[0], (from) => ({ from, to: Math.max(from, chosen?.[1] ?? from) }))),
      make("label", null, "to ", moment("Last moment", chosen?.[1], (to) => ({ to, from: Math.min(to, chosen?.[0] ?? to) }))),
      ...(chosen ? [make("button", { onclick: () => this.state.set({ from: null, to: null }) }, "Choose none")] : []),
      ...(chosen && chosen[1] > chosen[0] ? [make("button", { onclick: () => this.#look([chosen[0], chosen[1] + 1]) }, "Zoom to these")] : []),
      ...(options.zoom ? [make("button", { onclick: () => this.#option({ zoom: null }) }, "Zoom out")] : []),
      note("A moment is a step of the program. Drag over the chart to choose some; w s zoom, a d move."));
  }

  /** What follows the selection. */
  #follow() {
    const chosen = this.chosen(), moment = chosen ? this.fullest(chosen) : this.peak;
    this.#toolbar();
    this.side.replaceChildren(make("table", null,
      make("thead", null, make("tr", null, make("th", { class: "words", scope: "col" }, `Moment ${moment}`), make("th", { scope: "col" }, "bytes"))),
      make("tbody", null, ...this.kinds.map((kind) => kind).reverse().map(({ name, values }) => make("tr", null, make("td", { class: "words" }, legend([[name, ...look(name)]])), make("td", null, bytes(values[moment])))),
        make("tr", null, make("td", { class: "words" }, "together"), make("td", null, bytes(this.sum[moment] ?? 0))),
        make("tr", null, make("td", { class: "words" }, "— fullest tile then"), make("td", null, bytes(this.max[moment] ?? 0))),
        make("tr", null, make("td", { class: "words" }, "┄ mean tile"), make("td", null, bytes(this.mean[moment] ?? 0))))));
    this.chart.repaint();
    this.about.replaceChildren(this.#of(chosen, moment));
    this.refresh?.();
  }

  /** @param {[number, number] | null} chosen @param {number} moment */
  #of(chosen, moment) {
    const { tensors, line } = this, key = this.key(moment), here = this.selection;
    const which = !chosen ? `The peak, moment ${moment}` : chosen[0] === chosen[1] ? `Moment ${moment}` : `Moments ${chosen[0]} to ${chosen[1]}, ${cycles(line.cycles(chosen[0], chosen[1] + 1))}; the fullest is ${moment}`;
    let born = 0, dead = 0;
    if (tensors && chosen) for (let row = 0; row < tensors.count; row++) {
      if (tensors.always[row]) continue;
      if (tensors.first[row] >= chosen[0] && tensors.first[row] <= chosen[1]) born++;
      if (tensors.last[row] >= chosen[0] && tensors.last[row] <= chosen[1]) dead++;
    }
    return make("p", { class: "made" }, `${which}: ${bytes(this.max[moment] ?? 0)} on the fullest tile. `,
      ...(tensors && chosen ? [`${many(born, "storage")} begin here and ${plain(dead)} end. `] : []),
      make("a", { href: encoded({ ...here, page: "memory", from: moment, to: moment, view: "" }) }, "Its tiles"),
      ...(key === null ? [] : [" · ", make("a", { href: encoded({ ...here, page: "operations", operation: key, view: "" }) }, `Operation ${this.name(moment)}`)]));
  }

  async load() {
    try {
      const [tensors, placements] = await Promise.all([Tensors.load(this.context), this.context.table("placements")]);
      if (this.closed) return;
      this.tensors = tensors;
      this.on = tensors.on(this.memory.fullest_ipu, this.memory.fullest_tile, new Placed(placements, this.memory.fullest_ipu, this.line.count));
      this.#fillLives(tensors);
      this.#fillTightest(tensors);
      this.#follow();
    } catch (error) {
      this.lives.replaceChildren(problem(error));
    }
    this.lives.removeAttribute("aria-busy");
    this.node.setAttribute("data-ready", "");
  }

  /** @param {Tensors} tensors */
  #fillLives(tensors) {
    const page = this;
    const grid = livesGrid({ tensors, on: this.on, line: this.line, range: () => this.range(), axis: () => this.axis(), peak: this.peak,
      chosen: (row) => { const key = tensors.key(row); this.state.set({ view: viewWith(this.selection, { tensor: String(row) }), ...(key === null ? {} : { operation: key }) }, true); },
      opened: (row) => { const key = tensors.key(row); if (key !== null) this.state.set({ page: "operations", operation: key, view: "" }); } });
    grid.scroller.style.scrollbarGutter = "stable";
    const gutter = new ResizeObserver(() => { this.aligned.style.paddingRight = RIGHT + grid.scroller.offsetWidth - grid.scroller.clientWidth - 2 + "px"; });
    gutter.observe(grid.scroller);
    const search = searchBox(this.state);
    const of = choice(this.state, "of", "Which tensors", [["", "on this tile"], ["ipu", `of IPU ${this.memory.fullest_ipu}`]]);
    const when = choice(this.state, "when", "When live", [["", "at the peak, or in the chosen moments"], ["any", "at any time"]]);
    const stay = choice(this.state, "stay", "How long they stay", [["", "all that come and go"], ["long", "only those that stay long"], ["always", "with those that are always there"]]);
    const total = make("p", { class: "note" });
    this.refresh = () => {
      const { of: scope, stay: stays, when: live, tensor } = page.options, chosen = live === "any" ? null : page.chosen() ?? [page.peak, page.peak], hit = tensors.matching(page.selection.search), ipu = page.memory.fullest_ipu;
      for (const box of [search, of, when, stay]) box.follow();
      const rows = tensors.rows((r) => tensors.ipu[r] === ipu && (scope === "ipu" || !(page.on[r] === 0)) && (!chosen || tensors.alive(r, ...chosen))
        && (stays === "always" || (stays === "long" ? tensors.long(r) : !tensors.always[r])) && hit(r));
      const shown = String(rows.length) + rows.reduce((sum, r) => (sum * 31 + r) | 0, 7);
      if (shown !== page.listed) grid.fill(rows);
      else grid.repaint();
      page.listed = shown;
      total.textContent = `${many(rows.length, "storage")}${!chosen ? "" : chosen[0] === chosen[1] ? ` live at moment ${chosen[0]}` : ` live in moments ${chosen[0]} to ${chosen[1]}`}, ${size(rows.reduce((sum, r) => sum + page.on[r], 0))} of the tile${chosen && chosen[0] === chosen[1] ? "" : " if they were all there at once"}. “Long” is half of the program or more.`;
      if (tensor !== undefined && Number(tensor) < tensors.count && grid.current !== Number(tensor)) grid.reveal(Number(tensor));
    };
    this.lives.replaceChildren(heading("Who lives when"), make("div", { class: "tools" }, search.node, of.node, when.node, stay.node), total, grid.node);
  }

  /** Moments by their bytes, those of operations that are alike told once. @param {Tensors} tensors */
  #fillTightest(tensors) {
    const { operations } = tensors, names = operations.words("name"), types = operations.words("types"), files = operations.words("file"), lines = operations.numbers("line"), layers = operations.words("layer"), keys = operations.words("key");
    /** @type {Map<number, {moment: number, alike: number, least: number}>} by name and type of what runs */
    const found = new Map();
    for (let moment = 0; moment < this.line.count; moment++) {
      const row = this.line.operation[moment], like = row < 0 ? -1 - moment : names.index[row] * types.distinct.length + types.index[row], known = found.get(like), size = this.max[moment];
      if (!known) { found.set(like, { moment, alike: 0, least: size }); continue; }
      known.alike++;
      known.least = Math.min(known.least, size);
      if (size > this.max[known.moment]) known.moment = moment;
    }
    const tightest = [...found.values()].sort((a, b) => this.max[b.moment] - this.max[a.moment] || a.moment - b.moment).slice(0, TIGHTEST);
    const here = this.selection, head = ["bytes", "of the limit", "for the step itself"];
    const passing = this.kinds.filter(({ name }) => name === "temporaries" || name === "exchange buffers");
    const cell = (/** @type {string | Node} */ content, /** @type {string | null} */ kind = null, title = typeof content === "string" ? content : content.textContent) => make("td", { class: kind, title }, content);
    const rows = tightest.map(({ moment, alike, least }) => {
      const row = this.line.operation[moment], name = row < 0 ? "" : names.at(row);
      return make("tr", null,
        cell(make("a", { href: encoded({ ...here, from: moment, to: moment }) }, `moment ${moment}`), "words"),
        cell(bytes(this.max[moment])), cell(percent(this.max[moment], this.memory.limit), this.max[moment] > this.memory.limit ? "bad" : null),
        cell(bytes(passing.reduce((sum, { values }) => sum + values[moment], 0))),
        cell(row < 0 ? "" : make("a", { href: encoded({ ...here, page: "operations", operation: keys.at(row), view: "" }) }, name || "without a name"), "words"),
        cell(row < 0 ? "" : where(files.at(row).replace(/^.*[/\\]/, ""), lines[row], tail(layers.at(row), 24)), "words", row < 0 ? "" : where(files.at(row), lines[row], layers.at(row))),
        cell(alike ? `+${plain(alike)} like it, down to ${bytes(least)}` : "", "words"),
        cell(make("a", { href: encoded({ ...here, page: "memory", from: moment, to: moment, view: "" }) }, "tiles"), "words"));
    });
    this.tight.replaceChildren(heading("Tightest moments"), make("div", { class: "scroll tight", tabindex: 0, role: "region", "aria-label": "Tightest moments" }, make("table", null,
      make("thead", null, make("tr", null, make("th", { class: "words", scope: "col" }, "when"), ...head.map((text) => make("th", { scope: "col" }, text)), ...["operation", "from", "alike", ""].map((text) => make("th", { class: "words", scope: "col" }, text)))),
      make("tbody", null, ...rows))));
  }

  update() {
    this.#follow();
    return true;
  }
}

/** @type {WeakMap<Table, Float64Array>} */
const sums = new WeakMap();

/** The bytes of all kinds at each moment, added up once. @param {Table} liveness @param {{values: import("../packet.js").Numbers}[]} kinds */
function summed(liveness, kinds) {
  let sum = sums.get(liveness);
  if (!sum) {
    sums.set(liveness, (sum = new Float64Array(liveness.count)));
    for (const { values } of kinds) for (let i = 0; i < values.length; i++) sum[i] += values[i];
  }
  return sum;
}

/** The moments that a table in brief has in runs. @param {Table} table @returns {Table} */
function spread(table) {
  const stop = table.numbers("stop"), count = table.header.of, names = table.names.filter((name) => name !== "stop");
  /** @type {Map<string, Float32Array>} */
  const known = new Map();
  const values = (/** @type {string} */ name) => {
    if (name !== "sum") return table.numbers(name);
    const sum = new Float64Array(stop.length);
    for (const kind of names) if (kind !== "max" && kind !== "mean") table.numbers(kind).forEach((value, i) => { sum[i] += value; });
    return sum;
  };
  const numbers = (/** @type {string} */ name) => {
    let all = known.get(name);
    if (all) return all;
    known.set(name, (all = new Float32Array(count))); // bytes of a tile are whole in it
    const runs = values(name);
    if (runs.every((value) => value === runs[0])) return all.fill(runs[0] ?? 0);
    for (let i = 0, from = 0; i < stop.length; from = stop[i++]) all.fill(runs[i], from, stop[i]);
    return all;
  };
  return { ...table, count, numbers, names, has: (name) => name === "sum" || names.includes(name) };
}

/** @type {import("../main.js").Page} */
export const liveness = {
  name: "liveness",
  title: "Liveness",
  keep: true,
  needs: ["moments", "liveness", "operations", "tensors", "columns", "placements"],
  brief: { liveness: "liveness" },
  async show(context) {
    const [summary, moments, table] = await Promise.all([context.json("summary"), context.brief ? null : context.table("moments"), context.table("liveness")]);
    if (!moments) return { node: new LivenessPage(context, summary, null, spread(table)).node };
    const page = new LivenessPage(context, summary, whole(moments, "the program over time"), whole(table, "the program over time"));
    drawn().then(() => page.load()); // what can be drawn without the tensors comes first
    return { node: page.node, update: () => page.update(), close: () => { page.closed = true; } };
  },
};
