// Which tile, and why: the bytes of every tile, what lies where on one of them, and whose they are.

import "./memory.css";
import { legend } from "../chart.js";
import { card, drawn, heading, make, note, problem, select, table, toggle } from "../dom.js";
import { bytes, many, percent, plain } from "../format.js";
import { Grid } from "../grid.js";
import { whole } from "../packet.js";
import { encoded, numbersOf, viewOf, viewWith } from "../state.js";
import { inOrder, look, PASSING } from "../memory/categories.js";
import { columnsChart } from "../memory/columns.js";
import { mapChart, mapKey } from "../memory/map.js";
import { addressMap, addressStrip, letters, Placed } from "../memory/placed.js";
import { tensorList } from "../memory/tensor_list.js";
import { Tensors } from "../memory/tensors.js";
import { Tiles } from "../memory/tiles.js";
import { refill } from "../memory/tools.js";

/** @typedef {import("../main.js").Context} Context */
/** @typedef {import("../state.js").Selection} Selection */

class MemoryPage {
  /** @param {Context} context @param {any} summary @param {Tiles} tiles */
  constructor(context, summary, tiles) {
    this.context = context;
    this.state = context.state;
    this.memory = summary.tile_memory;
    this.tiles = tiles;
    this.held = tiles.peak;
    this.closed = false;
    /** @type {{tensors: Tensors, placements: import("../packet.js").Table, high: import("../packet.js").Numbers} | null} */
    this.loaded = null;
    this.tools = make("div", { class: "tools" });
    this.drawing = make("div");
    this.each = tiles.byIpu(this.held);
    this.ipus = tiles.ipus > 1 ? this.#ipuGrid() : null;
    this.tile = make("section", { "aria-busy": "true", "data-later": true });
    this.node = make("section", null, this.#cards(), this.tools, this.drawing, ...(this.ipus ? [this.ipus.node] : []), this.tile);
    this.#fillIpus();
    this.#redraw();
  }

  get selection() { return this.state.selection; }
  /** What the page keeps for itself in the address. @returns {Record<string, string>} */
  get options() { return Object.fromEntries(viewOf(this.selection)); }
  /** @param {Record<string, string | null>} changes @param {Partial<Selection>} [more] @param {boolean} [replace] */
  option(changes, more = {}, replace = true) { this.state.set({ ...more, view: viewWith(this.selection, changes) }, replace); }

  /** The one IPU that is shown, or null for all. */
  ipu() {
    const { ipu } = this.selection;
    return this.tiles.ipus === 1 ? 0 : ipu !== null && ipu < this.tiles.ipus ? ipu : null;
  }
  /** The place of the tile that is looked at: the one chosen, else the fullest. */
  chosen() {
    const ipu = this.ipu() ?? this.memory.fullest_ipu, { tile } = this.selection;
    return ipu * this.tiles.each + (tile !== null && tile < this.tiles.each && this.ipu() !== null ? tile : this.#fullest(ipu));
  }
  /** @param {number} ipu */
  #fullest(ipu) {
    return ipu === this.memory.fullest_ipu && this.held === this.tiles.peak ? this.memory.fullest_tile : this.tiles.byIpu(this.held)[ipu].fullest;
  }
  /** @returns {[number, number]} */
  whole() {
    const ipu = this.ipu(), { each, count } = this.tiles;
    return ipu === null ? [0, count] : [ipu * each, (ipu + 1) * each];
  }
  /** @returns {[number, number]} */
  range() {
    const [first, stop] = this.whole(), [a, b] = numbersOf(this.selection, "zoom", 2) ?? [0, 0];
    return a >= first && b > a && b <= stop ? [a, b] : [first, stop];
  }
  most() { return this.tiles.byIpu(this.held).reduce((most, { max }) => Math.max(most, max), 1); }
  highest() { return this.options.scale === "fullest" ? this.most() : Math.max(this.memory.limit, this.most()); }

  /** The moment that is chosen (of a range its fullest), or null. */
  momentChosen() {
    const { from, to } = this.selection, count = this.loaded?.tensors.moments ?? Infinity;
    if (from === null || from >= count) return null;
    let most = from;
    for (let i = from; this.loaded && i <= Math.min(to ?? from, count - 1); i++) if (this.loaded.high[i] > this.loaded.high[most]) most = i;
    return most;
  }

  #cards() {
    const { memory: m, tiles } = this, each = tiles.byIpu(tiles.peak), over = each.reduce((sum, e) => sum + e.over, 0);
    const here = { ...this.selection, ipu: tiles.ipus > 1 ? m.fullest_ipu : null, tile: m.fullest_tile };
    return make("div", { class: "cards" },
      card("Fullest tile", bytes(m.max), `of ${bytes(m.limit)}: ${percent(m.max, m.limit)}`, m.fits ? "" : "bad"),
      make("div", { class: "card" }, make("small", null, "Where"), make("b", null, make("a", { href: encoded(here) }, tiles.name(m.fullest_ipu * tiles.each + m.fullest_tile))),
        make("small", null, "at ", make("a", { href: encoded({ ...this.selection, page: "liveness", from: m.peak_moment, to: m.peak_moment, view: "" }) }, `moment ${m.peak_moment}`), " of the program")),
      card(m.fits ? "Room there" : "Over by", bytes(m.fits ? m.limit - m.max : m.gap), m.fits ? "on the fullest tile" : "what must go from the fullest tile", m.fits ? "good" : "bad"),
      card("Mean tile", bytes(m.mean), `${percent(m.mean, m.max)} of the fullest`),
      card("Tiles over the limit", plain(over), `of ${plain(tiles.count)}`, over ? "bad" : "good"));
  }

  #toolbar() {
    const { tiles, options } = this, map = options.as === "map", moment = this.momentChosen();
    const chips = select("IPU", [["", "all IPUs"], ...Array.from({ length: tiles.ipus }, (_, i) => /** @type {[number, string]} */ ([i, `IPU ${i}`]))], this.ipu() ?? "",
      (ipu) => this.open(ipu === "" ? null : Number(ipu)));
    const number = /** @type {HTMLInputElement} */ (make("input", { type: "number", min: 0, max: tiles.each - 1, value: this.chosen() % tiles.each, "aria-label": "Tile", style: "width:84px",
      onchange: () => { if (number.value !== "" && number.valueAsNumber >= 0 && number.valueAsNumber < tiles.each) this.choose(Math.floor(this.chosen() / tiles.each) * tiles.each + Math.floor(number.valueAsNumber)); } }));
    const kind = select("Colour by", [["", "all that it holds"], ...this.held.kinds.map(({ name }) => /** @type {[string, string]} */ ([name, name]))], this.#kind()?.name ?? "",
      (name) => this.option({ kind: name || null }));
    refill(this.tools,
      toggle("Columns", !map, () => this.option({ as: null })), toggle("Chip map", map, () => this.option({ as: "map" })),
      ...(tiles.ipus > 1 ? [chips] : []), make("label", null, "tile ", number),
      toggle("Each at its own peak", moment === null, () => this.state.set({ from: null, to: null })),
      ...(this.loaded?.tensors.sized === false ? [] : [toggle(`All at moment ${moment ?? this.memory.peak_moment}`, moment !== null, () => this.state.set({ from: this.memory.peak_moment, to: this.memory.peak_moment }))]),
      toggle(options.scale === "fullest" ? "Scale: the fullest tile" : "Scale: the limit", options.scale === "fullest", () => this.option({ scale: options.scale === "fullest" ? null : "fullest" })),
      ...(map ? [make("label", null, "colour ", kind)] : []),
      ...(this.options.zoom && !map ? [toggle("Zoom out", false, () => this.option({ zoom: null }))] : []));
  }

  #kind() { return this.held.kinds.find(({ name }) => name === this.options.kind); }

  #ipuGrid() {
    const grid = new Grid({
      label: "IPUs", height: 28 + 24 * Math.min(6, this.tiles.ipus) + 4, sorted: 1,
      columns: [
        { name: "IPU", width: "80px", words: true, text: (r) => `IPU ${r}`, order: (a, b) => a - b },
        { name: "Fullest tile", width: "120px", text: (r) => bytes(this.each[r].max), order: (a, b) => this.each[a].max - this.each[b].max },
        { name: "Which", width: "90px", text: (r) => String(this.each[r].fullest), order: (a, b) => this.each[a].fullest - this.each[b].fullest },
        { name: "Of the limit", width: "110px", text: (r) => percent(this.each[r].max, this.memory.limit), order: (a, b) => this.each[a].max - this.each[b].max },
        { name: "Mean tile", width: "120px", text: (r) => bytes(this.each[r].mean), order: (a, b) => this.each[a].mean - this.each[b].mean },
        { name: "Tiles over the limit", width: "180px", text: (r) => plain(this.each[r].over), order: (a, b) => this.each[a].over - this.each[b].over },
      ],
      chosen: (r) => this.open(r),
    });
    return grid;
  }

  #fillIpus() {
    this.each = this.tiles.byIpu(this.held);
    this.ipus?.fill(Int32Array.from({ length: this.tiles.ipus }, (_, i) => i));
  }

  /** @param {number} place */
  choose(place) {
    const { each, ipus } = this.tiles;
    this.state.set({ ipu: ipus > 1 ? Math.floor(place / each) : null, tile: place % each });
  }
  /** @param {number | null} ipu */
  open(ipu) { this.option({ zoom: null }, { ipu, tile: null }, false); }

  /** The drawing of all tiles: made anew where another is wanted. */
  #redraw() {
    const { tiles, held } = this, map = this.options.as === "map", one = this.ipu();
    this.#toolbar();
    if (this.ipus && one !== null) this.ipus.reveal(one);
    const head = (one === null ? "Tiles of all IPUs" : tiles.ipus > 1 ? `Tiles of IPU ${one}` : "All tiles") + ", " + held.title;
    if (map) {
      const kind = this.#kind(), limited = !kind;
      const most = limited ? (this.options.scale === "fullest" ? Math.min(this.most(), this.memory.limit) : this.memory.limit) : largest(kind.values);
      this.chart = mapChart({ tiles, ipu: () => this.ipu(), values: () => (this.#kind() ?? { values: this.held.total }).values, total: () => this.held.total, what: () => this.options.kind ?? "", highest: () => most, most: () => this.most(),
        limited: () => limited, chosen: () => this.chosen(), choose: (p) => this.choose(p), open: (ipu) => this.open(ipu) });
      refill(this.drawing, heading(head), this.chart.node, mapKey(most, this.memory.limit, limited ? this.most() : 0));
    } else {
      this.chart = columnsChart({ tiles, held: () => this.held, range: () => this.range(), whole: () => this.whole(), highest: () => this.highest(), chosen: () => this.chosen(),
        choose: (p) => this.choose(p), look: ([a, b]) => this.option({ zoom: String([a, b]) === String(this.whole()) ? null : `${a}-${b}` }), out: () => { if (tiles.ipus > 1) this.open(null); } });
      refill(this.drawing, heading(head), this.chart.node, legend(held.kinds.map(({ name }) => [name === PASSING ? "for a while: values, temporaries, exchange buffers" : name, ...look(name)])));
    }
    this.drawn = this.#drawnFor();
  }
  /** What a drawing depends on, its zoom and tile apart. */
  #drawnFor() {
    const { as, kind, scale } = this.options;
    return JSON.stringify([as, as === "map" ? kind : "", as === "map" ? scale : "", this.ipu(), this.held.title]);
  }

  /** Loads what the tile and its tensors need. */
  async load() {
    try {
      const [tensors, placements, liveness] = await Promise.all([Tensors.load(this.context), this.context.table("placements"), this.context.table("liveness")]);
      if (this.closed) return;
      this.loaded = { tensors, placements, high: liveness.numbers("max") };
      if (this.#hold()) this.#redraw();
      else this.#toolbar();
      this.#fillTile();
    } catch (error) {
      this.tile.replaceChildren(problem(error));
    }
    this.tile.removeAttribute("aria-busy");
    this.node.setAttribute("data-ready", "");
  }

  /** The bytes of the tiles for the moment that is chosen. Did they change? */
  #hold() {
    if (!this.loaded) return false;
    const moment = this.loaded.tensors.sized ? this.momentChosen() : null, title = moment === null ? this.tiles.peak.title : `at moment ${moment}`;
    if (title === this.held.title) return false;
    this.held = moment === null ? this.tiles.peak : this.tiles.during(title, this.loaded.tensors.passingAt(moment, this.tiles.ipus, this.tiles.each));
    this.#fillIpus();
    return true;
  }

  /** All of one tile. */
  #fillTile() {
    const loaded = this.loaded;
    if (!loaded) return;
    const { tensors, placements } = loaded, { tiles, memory: m } = this, place = this.chosen(), ipu = Math.floor(place / tiles.each), tile = place % tiles.each;
    const placed = new Placed(placements, ipu, tensors.moments), lies = placed.tile === tile, fullest = ipu === m.fullest_ipu && tile === m.fullest_tile;
    const usual = ipu === m.fullest_ipu ? m.peak_moment : placed.peak();
    this.now = () => this.momentChosen() ?? Math.min(usual, Math.max(0, tensors.moments - 1));
    const on = tensors.on(ipu, tile, placed);
    this.signs = lies ? letters(placed.at(this.now())) : new Map();
    const addressed = new Set(Array.from(placed.rows, (i) => tensors.categories.at(placed.tensor[i])));
    const beside = tiles.always.filter(({ name }) => !addressed.has(name)).reduce((sum, { values }) => sum + values[place], 0);
    const seen = { placed, tensors, limit: m.limit, beside, moment: this.now, chosen: () => this.#tensor(), choose: (/** @type {number} */ t) => this.chooseTensor(t),
      at: (/** @type {number} */ moment) => this.state.set({ from: moment, to: moment }, true) };
    this.charts = lies ? [addressStrip(seen), addressMap(seen)] : [];
    this.categories = make("div");
    this.fragments = make("div");
    this.placed = lies ? placed : null;
    const other = make("button", { onclick: () => this.choose(ipu * tiles.each + placed.tile) }, `Look at tile ${placed.tile}`);
    const step = (/** @type {number} */ by, /** @type {string} */ text) => make("button", { onclick: () => this.choose(Math.max(ipu * tiles.each, Math.min((ipu + 1) * tiles.each - 1, place + by))), "aria-label": by < 0 ? "Previous tile" : "Next tile" }, text);
    const title = make("div", { class: "tools" }, make("h2", { style: "margin:0" }, `${sentence(tiles.name(place))}${fullest ? ", the fullest" : ""}: ${bytes(this.tiles.peak.total[place])} at its peak`), step(-1, "◂"), step(1, "▸"));
    const right = make("div", null, ...(lies ? [this.fragments, this.charts[0].node, note("Over the program, moment by moment down the page; choose one."), this.charts[1].node]
      : [note(placed.tile < 0 ? "Nothing of this IPU has an address." : `Addresses are modelled for the fullest tile of each IPU, here tile ${placed.tile}.`), ...(placed.tile < 0 ? [] : [other])]));
    this.list = tensorList({ tensors, state: this.state, tile: tiles.name(place), ipu, on, moment: () => this.now?.() ?? 0, letter: (row) => this.signs?.get(row) ?? "", chosen: () => this.#tensor(), choose: (row) => this.chooseTensor(row) }, `On tile ${tile}`);
    refill(this.tile, title, make("div", { class: "beside" }, this.categories, right), ...this.list.nodes);
    this.#momentChanged();
    this.tileOf = place;
  }

  /** What follows the moment on the page of a tile. */
  #momentChanged() {
    const place = this.chosen(), { memory: m, placed } = this, moment = this.now?.() ?? 0;
    const own = this.momentChosen() === null, exact = own && place === m.fullest_ipu * this.tiles.each + m.fullest_tile;
    /** @type {[string, number][]} */
    const parts = exact ? inOrder(Object.keys(m.categories)).map((name) => [name, m.categories[name]]) : this.held.kinds.map(({ name, values }) => [name, values[place]]);
    const sum = parts.reduce((all, [, part]) => all + part, 0);
    this.categories?.replaceChildren(table([{ name: own ? "At its peak" : `At moment ${moment}`, value: (p) => p[0], words: true }, { name: "bytes", value: (p) => bytes(p[1]) }, { name: "share", value: (p) => percent(p[1], sum) }],
      [...parts.filter(([, part]) => part > 0).sort((a, b) => b[1] - a[1]), ["together", sum]], "Kinds of memory on this tile"));
    if (placed) {
      const at = placed.at(moment), gaps = at.filter(({ tensor }) => tensor < 0), lost = gaps.reduce((all, { from, to }) => all + to - from, 0);
      this.signs = letters(at);
      this.fragments?.replaceChildren(note(`Addresses at moment ${moment}: ${many(at.length - gaps.length, "storage")}, ${many(gaps.length, "gap")} between them` +
        (lost ? ` of ${bytes(lost)}, the largest ${bytes(gaps.reduce((most, { from, to }) => Math.max(most, to - from), 0))}.` : ".") + " Modelled: first fit by birth."));
    }
    for (const chart of this.charts ?? []) chart.repaint();
    this.list?.refresh();
  }

  /** The tensor that is chosen, a row. */
  #tensor() {
    const t = Number(this.options.tensor ?? NaN);
    return this.loaded && t >= 0 && t < this.loaded.tensors.count ? t : null;
  }
  /** @param {number} row */
  chooseTensor(row) {
    const key = this.loaded?.tensors.key(row) ?? null;
    this.option({ tensor: String(row) }, key === null ? {} : { operation: key });
  }

  /** @param {Selection} now @param {Selection} before */
  update(now, before) {
    if (this.#hold() || this.#drawnFor() !== this.drawn) this.#redraw();
    else { this.#toolbar(); this.chart?.repaint(); }
    if (this.tileOf !== this.chosen()) this.#fillTile();
    else if (now.view !== before.view || now.search !== before.search || now.from !== before.from || now.to !== before.to) this.#momentChanged();
    return true;
  }
}

/** @param {import("../packet.js").Numbers} values */
const largest = (values) => { let most = 1; for (const value of values) most = Math.max(most, value); return most; };
const sentence = (/** @type {string} */ text) => text[0].toUpperCase() + text.slice(1);

/** @type {import("../main.js").Page} */
export const memory = {
  name: "memory",
  title: "Memory",
  keep: true,
  first: ["tiles"],
  needs: ["tiles", "operations", "moments", "liveness", "tensors", "columns", "placements"],
  async show(context) {
    const [summary, table] = await Promise.all([context.json("summary"), context.table("tiles")]);
    const page = new MemoryPage(context, summary, new Tiles(summary, whole(table, "the tiles' memory")));
    drawn().then(() => page.load()); // what can be drawn without the tensors comes first
    return { node: page.node, update: (now, before) => page.update(now, before), close: () => { page.closed = true; } };
  },
};
