// Who sends to whom: between groups of tiles, between IPUs, and which operations it is for.

import "./exchange.css";
import { Chart, colour, fill, tag } from "../chart.js";
import { card, heading, make, note, say, select, table } from "../dom.js";
import { bytes, cycles, percent, plain, where } from "../format.js";
import { Grid } from "../grid.js";
import { rowOf } from "../optree.js";
import { leftOut } from "../packet.js";
import { breath } from "../slices.js";
import { numbersOf, viewOf, viewWith } from "../state.js";
import { Flows, Scope } from "./exchange/flows.js";
import { heat, shadeKey } from "./exchange/heat.js";
import { tilesOf } from "./timeline/step.js";

/** @typedef {import("../main.js").Selection} Selection @typedef {import("../packet.js").Table} Table */

const ALL = 8; // IPUs whose groups are shown in one square
const HOTTEST = 12;

class Exchange {
  /** @param {import("../main.js").Context} context @param {any} summary @param {Table} operations @param {Table} traffic @param {Table | null} moments where a range of them is chosen */
  constructor(context, summary, operations, traffic, moments) {
    this.context = context;
    this.summary = summary;
    this.operations = operations;
    this.traffic = traffic;
    this.moments = moments;
    this.groups = Math.min(32, summary.tiles);
    this.hasLinks = traffic.numbers("links").some((/** @type {number} */ links) => links);
    this.kind = "program";
    this.links = false;
    this.key = this.#key(context.state.selection);
    this.scope = new Scope(operations, moments, context.state.selection, this.kind);
    this.flows = new Flows(traffic, this.scope, false, this.groups);
    this.between = this.flows.between();
    /** @type {[number, number] | null} the IPUs whose groups are shown; null: all */
    this.pair = null;
    /** @type {Float64Array} */
    this.matrix = new Float64Array(0);
    /** @type {[number, number] | null} from and to, groups of all IPUs */
    this.cell = null;
    this.read(context.state.selection);
  }

  /** What sums depend on. @param {Selection} selection */
  #key(selection) {
    return [this.kind, this.links, this.kind === "operation" && selection.operation, this.kind === "range" && [selection.from, selection.to]].join();
  }

  /** Sum up what the address asks for. @param {Selection} selection */
  read(selection) {
    const view = viewOf(selection), wanted = view.get("scope") ?? "", { operation, from, to } = selection;
    const possible = ["program", ...(operation !== null ? ["operation"] : []), ...(from !== null && to !== null ? ["range"] : [])];
    this.kind = possible.includes(wanted) ? wanted : "program";
    this.links = this.hasLinks && view.get("over") === "links";
    const key = this.#key(selection), fresh = key !== this.key || !this.matrix.length;
    if (key !== this.key) {
      this.key = key;
      this.scope = new Scope(this.operations, this.moments, selection, this.kind);
      this.flows = new Flows(this.traffic, this.scope, this.links, this.groups);
      this.between = this.flows.between();
    }
    const { ipus } = this.flows, wide = numbersOf(selection, "pair", 2), before = String(this.pair);
    this.pair = wide && wide[0] < ipus && wide[1] < ipus ? [wide[0], wide[1]] : null;
    if (!this.pair && ipus > ALL) { // the two with most between them
      const most = this.between.reduce((best, value, i) => (value > this.between[best] ? i : best), 0);
      this.pair = [Math.floor(most / ipus), most % ipus];
    }
    if (fresh || String(this.pair) !== before) this.matrix = this.flows.matrix(this.pair);
    const cell = numbersOf(selection, "cell", 2), all = ipus * this.groups;
    this.cell = cell && cell[0] < all && cell[1] < all ? [cell[0], cell[1]] : null;
  }

  /** @param {number} group of all IPUs */
  name(group) {
    const tiles = `tiles ${tilesOf(group % this.groups, this.groups, this.summary.tiles)}`;
    return this.flows.ipus > 1 ? `IPU ${Math.floor(group / this.groups)} ${tiles}` : tiles;
  }

  /** @param {Record<string, string | null>} changes of the view */
  set(changes) {
    const { state } = this.context;
    state.set({ view: viewWith(state.selection, changes) });
  }
}

/** Bytes between groups. @param {Exchange} e */
function groupHeat(e) {
  const base = () => /** @type {[number, number]} */ (e.pair ? [e.pair[0] * e.groups, e.pair[1] * e.groups] : [0, 0]);
  return heat({
    label: "Bytes from each group of neighbouring tiles, a row, to each group, a column",
    height: 440,
    count: () => (e.pair ? e.groups : e.groups * e.flows.ipus),
    values: () => e.matrix,
    block: () => (e.pair || e.flows.ipus === 1 ? 1 : e.groups),
    name: (i) => e.name(base()[0] + i),
    columnName: (i) => e.name(base()[1] + i),
    tick: (b) => (e.pair || e.flows.ipus === 1 ? String(Math.ceil((b * e.summary.tiles) / e.groups)) : "IPU " + b),
    chosen: () => {
      if (!e.cell) return null;
      const place = [e.cell[0] - base()[0], e.cell[1] - base()[1]], count = e.pair ? e.groups : e.groups * e.flows.ipus;
      return place.every((i) => i >= 0 && i < count) ? /** @type {[number, number]} */ (place) : null;
    },
    choose: (row, column) => e.set({ cell: `${base()[0] + row}-${base()[1] + column}` }),
    rows: () => table([{ name: "from", value: (f) => e.name(f.from), words: true }, { name: "to", value: (f) => e.name(f.to), words: true },
      { name: "bytes", value: (f) => f.bytes, show: bytes }, { name: "share", value: (f) => f.bytes, show: (v) => percent(v, e.flows.total) }], e.flows.flows.slice(0, 500), "Bytes between groups, the largest 500"),
  });
}

/** Bytes between IPUs. @param {Exchange} e */
function ipuHeat(e) {
  return heat({
    label: "Bytes from each IPU, a row, to each IPU, a column",
    height: e.flows.ipus > ALL ? 440 : 260,
    count: () => e.flows.ipus,
    values: () => e.between,
    block: () => 1,
    name: (i) => "IPU " + i,
    columnName: (i) => "IPU " + i,
    tick: (b) => "IPU " + b,
    chosen: () => e.pair,
    choose: (row, column) => e.set({ pair: e.pair && e.pair[0] === row && e.pair[1] === column && e.flows.ipus <= ALL ? null : `${row}-${column}` }),
    rows: () => table([{ name: "from", value: (i) => "IPU " + Math.floor(i / e.flows.ipus), words: true }, { name: "to", value: (i) => "IPU " + (i % e.flows.ipus), words: true },
      { name: "bytes", value: (i) => e.between[i], show: bytes }, { name: "share", value: (i) => e.between[i], show: (v) => percent(v, e.flows.total) }],
    [...e.between.keys()].filter((i) => e.between[i]).sort((a, b) => e.between[b] - e.between[a]), "Bytes between IPUs"),
  });
}

/** The groups that send, or receive, most. @param {Exchange} e @param {"from" | "to"} end */
function hottest(e, end) {
  const tall = 18, word = end === "from" ? "send" : "receive";
  const rows = () => e.flows.by(end).slice(0, HOTTEST);
  let cursor = 0;
  const chart = new Chart({
    height: HOTTEST * tall,
    label: `The groups of tiles that ${word} most`,
    draw: (g, width) => {
      const found = rows(), most = found[0]?.[1] ?? 1;
      for (const [i, [group, moved]] of found.entries()) {
        g.fillStyle = fill(g, "exchange", end === "from" ? 1 : 0);
        g.fillRect(0, i * tall + 1, Math.max(2, ((width - 2) * moved) / most), tall - 3);
        tag(g, `${e.name(group)}: ${bytes(moved)}`, 6, i * tall + 2, "ink");
        if (document.activeElement === chart.canvas && i === cursor) { g.strokeStyle = colour("ink"); g.lineWidth = 2; g.strokeRect(1, i * tall + 1, width - 2, tall - 2); }
      }
      if (!found.length) tag(g, `No tiles ${word} anything.`, 6, 4, "soft");
    },
    read: (_x, y) => { const row = rows()[Math.floor(y / tall)]; return row ? `${e.name(row[0])} ${word}${end === "from" ? "" : "s"} ${bytes(row[1])}, ${percent(row[1], e.flows.total)}` : ""; },
    pick: (_x, y) => {
      const row = rows()[Math.floor(y / tall)];
      if (row) e.context.state.set({ ipu: Math.floor(row[0] / e.groups), tile: Math.ceil(((row[0] % e.groups) * e.summary.tiles) / e.groups) });
    },
    level: () => (cursor + 0.5) * tall,
    keys: (key) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[key], found = rows();
      if (!step || !found.length) return false;
      cursor = Math.max(0, Math.min(found.length - 1, cursor + step));
      say(`${e.name(found[cursor][0])}: ${bytes(found[cursor][1])}`);
      return true;
    },
    rows: () => table([{ name: "group", value: (row) => e.name(row[0]), words: true }, { name: "bytes", value: (row) => row[1], show: bytes }, { name: "share", value: (row) => row[1], show: (v) => percent(v, e.flows.total) }], e.flows.by(end).slice(0, 200), `Groups that ${word} most`),
  });
  return chart;
}

/** What each operation exchanges: in brief, those that take most, row 0 being all others. @param {Exchange} e */
function byOperation(e) {
  const { operations } = e, of = (/** @type {string} */ name) => operations.numbers(name), words = (/** @type {string} */ name) => operations.words(name);
  const number = (/** @type {string} */ title, /** @type {number} */ wide, /** @type {(i: number) => number} */ value, /** @type {(v: number) => string} */ show = plain) =>
    ({ name: title, width: wide + "px", text: (/** @type {number} */ i) => show(value(i)), value });
  const [exchange, links, near, far, all] = ["exchange", "links", "exchange_bytes", "link_bytes", "cycles"].map(of), replicas = of("replica_bytes");
  const weight = (/** @type {number} */ i) => e.scope.weights[i], cost = new Float64Array(operations.count), spent = (/** @type {number} */ i) => cost[i];
  let whole = 0;
  const place = (/** @type {number} */ i) => where(words("file").at(i), of("line")[i], words("layer").at(i));
  const short = (/** @type {number} */ i) => where(words("file").at(i).replace(/^.*[/\\]/, ""), of("line")[i], words("layer").at(i));
  const grid = new Grid({
    label: "Exchange by operation", height: 300, sorted: 3, down: true,
    columns: [
      { name: "operation", width: "minmax(150px, 1fr)", words: true, text: (i) => words("name").at(i) || words("kind").at(i), order: (a, b) => words("name").at(a).localeCompare(words("name").at(b)) },
      { name: "from", width: "minmax(240px, 1.6fr)", words: true, text: short, title: place, order: (a, b) => place(a).localeCompare(place(b)) },
      number("times", 76, weight), number("cycles", 96, spent), number("share", 76, spent, (v) => percent(v, whole)), number("of its own", 92, (i) => (all[i] ? (exchange[i] + links[i]) / all[i] : 0), (v) => percent(v, 1)),
      number("received", 108, (i) => near[i] * weight(i), bytes), number("over links", 104, (i) => far[i] * weight(i), bytes), ...(e.summary.replicas > 1 ? [number("to replicas", 108, (i) => replicas[i] * weight(i), bytes)] : []), number("link cycles", 100, (i) => links[i] * weight(i)),
    ],
    chosen: (i) => e.context.state.set({ operation: words("key").at(i) }),
  });
  const search = /** @type {HTMLInputElement} */ (make("input", { type: "search", placeholder: "Find an operation …", "aria-label": "Find an operation by name, line or module", oninput: () => e.context.state.set({ search: search.value }, true) }));
  search.value = e.context.state.selection.search;
  const refill = () => {
    whole = 0;
    for (let i = 0; i < operations.count; i++) whole += cost[i] = (exchange[i] + links[i]) * weight(i);
    const sought = e.context.state.selection.search.toLowerCase();
    const rows = [];
    for (let i = 0; i < operations.count; i++) {
      if (!weight(i) || (e.context.brief && i === 0) || !(exchange[i] || links[i] || near[i] || far[i])) continue;
      if (!sought || (words("name").at(i) + " " + place(i)).toLowerCase().includes(sought)) rows.push(i);
    }
    grid.fill(Int32Array.from(rows));
    grid.reveal(rowOf(operations, e.context.state.selection.operation));
    if (search.value !== e.context.state.selection.search) search.value = e.context.state.selection.search;
  };
  refill();
  return { node: make("div", null, make("div", { class: "tools" }, search), grid.node), refill };
}

/** The operations behind the chosen cell. @param {Exchange} e @returns {Node[]} */
function behind(e) {
  const { cell } = e;
  if (!cell) return [note("Choose a cell (click, or the arrows and Enter; M goes to the largest) to see the operations that it is for.")];
  const found = e.flows.operations((from, to) => from === cell[0] && to === cell[1]), { operations } = e, all = found.reduce((sum, row) => sum + row[1], 0);
  return [
    make("h3", null, `From ${e.name(cell[0])} to ${e.name(cell[1])}: ${bytes(all)}`),
    found.length ? table([
      { name: "operation", value: ([i]) => operations.words("name").at(i) || operations.words("kind").at(i), words: true },
      { name: "from", value: ([i]) => where(operations.words("file").at(i), operations.numbers("line")[i], operations.words("layer").at(i)), words: true },
      { name: "bytes", value: (row) => row[1], show: bytes }, { name: "share", value: (row) => row[1], show: (v) => percent(v, all) },
      { name: "times", value: ([i]) => e.scope.weights[i], show: plain }], found.slice(0, 40), "Operations of the chosen cell") : note("Nothing goes from there to there."),
    ...(found.length > 40 ? [note(`and ${plain(found.length - 40)} more operations`)] : []),
    make("div", { class: "tools" }, ...found.slice(0, 1).map(([i]) => make("button", { onclick: () => e.context.state.set({ operation: operations.words("key").at(i) }) }, "Choose the largest")),
      make("button", { onclick: () => e.set({ cell: null }) }, "Close")),
  ];
}

/** @type {import("../main.js").Page} */
export const exchange = {
  name: "exchange",
  title: "Exchange",
  keep: true,
  needs: ["operations", "traffic"],
  brief: { operations: "exchanges", traffic: "traffic" },
  async show(context) {
    const ranged = (/** @type {Selection} */ { from, to }) => from !== null && to !== null;
    const [summary, operations, traffic, moments] = await Promise.all([context.json("summary"), context.table("operations"), context.table("traffic"), ranged(context.state.selection) ? context.table("moments") : null]);
    if (!context.brief) await breath();
    const e = new Exchange(context, summary, operations, traffic, moments), many = e.flows.ipus > 1;
    if (!context.brief) await breath();
    const scope = select("Of what", [], "", (value) => e.set({ scope: value === "program" ? null : value, cell: null }));
    const over = select("Which bytes", [["tiles", "Received by tiles"], ["links", "Over links"]], "tiles", (value) => e.set({ over: value === "tiles" ? null : value, cell: null }));
    const whole = make("button", { onclick: () => e.set({ pair: null, cell: null }) }, "All IPUs");
    const cards = make("div", { class: "cards" }), told = make("span", { class: "note" }), groupTitle = make("h3"), detail = make("div", { class: many ? "exchange-detail" : null, "aria-live": "polite" });
    const groups = groupHeat(e), ipus = many ? ipuHeat(e) : null, senders = hottest(e, "from"), receivers = hottest(e, "to"), key = shadeKey(() => e.matrix), list = byOperation(e);
    const refresh = () => {
      const { selection } = context.state, name = () => operations.words("name").at(rowOf(operations, selection.operation));
      scope.replaceChildren(make("option", { value: "program" }, "The whole program"), ...(selection.operation !== null ? [make("option", { value: "operation" }, "The chosen operation: " + name().slice(0, 60))] : []),
        ...(selection.from !== null && selection.to !== null ? [make("option", { value: "range" }, `The chosen range: moments ${plain(selection.from)} to ${plain(selection.to)}`)] : []));
      scope.value = e.kind;
      over.value = e.links ? "links" : "tiles";
      whole.hidden = !many || e.flows.ipus > ALL;
      whole.toggleAttribute("disabled", !e.pair);
      const [near, far, between, spent, crossing] = ["exchange_bytes", "link_bytes", "replica_bytes", "exchange", "links"].map((column) => e.scope.sum(column));
      cards.replaceChildren(card("Received by tiles", bytes(near), plain(near) + " B in a run"), card("Over links", bytes(far), plain(far) + " B in a run"),
        e.summary.replicas > 1 ? card("To other replicas", bytes(between), "that each replica sends in collectives") : "",
        card("Exchange", cycles(spent), percent(spent, e.summary.cycles) + " of the run"), card("Waiting for links", cycles(crossing), percent(crossing, e.summary.cycles) + " of the run"));
      told.textContent = `${bytes(e.flows.total)} drawn, between ${plain(e.flows.flows.length)} pairs of groups of ${e.groups < e.summary.tiles ? `about ${plain(e.summary.tiles / e.groups)} neighbouring tiles` : "one tile"}`;
      groupTitle.textContent = e.pair ? `From the tiles of IPU ${e.pair[0]} to those of IPU ${e.pair[1]}` : "Between groups of tiles";
      detail.replaceChildren(...behind(e));
      key.repaint();
      for (const chart of [groups, senders, receivers, ...(ipus ? [ipus] : [])]) chart.repaint();
    };
    refresh();
    const most = [make("div", null, make("h3", null, "They send most"), senders.node), make("div", null, make("h3", null, "They receive most"), receivers.node)];
    return {
      node: make("section", null,
        heading("Who sends to whom"), cards,
        traffic.header.thinned ? note(leftOut("who sends to whom")) : null,
        make("div", { class: "tools" }, scope, e.hasLinks ? over : null, whole, told),
        make("div", { class: "exchange-sides" },
          make("div", null, groupTitle, groups.node, key.node),
          ...(ipus ? [make("div", null, make("h3", null, "Between IPUs"), ipus.node, detail), ...most] : [make("div", null, ...most)])),
        ipus ? null : detail,
        heading("Exchange by operation"), context.brief ? make("div", { "aria-busy": "true", "data-later": true }, note(`Those that take most; all ${plain(operations.header.listed)} are being fetched.`), list.node) : list.node),
      update: (now, before) => {
        if (ranged(now) && !moments) return false;
        const key = e.key;
        e.read(now);
        refresh();
        if (key !== e.key || now.search !== before.search || now.operation !== before.operation) list.refill();
        return true;
      },
    };
  },
};
