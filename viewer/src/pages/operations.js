// Where the time goes: layer, operation and compute set as a tree, as a flame by layer, and as a graph of the data.

import { make, note, problem, select } from "../dom.js";
import { bytes, cycles, flops, many, percent, plain, short, shortBytes } from "../format.js";
import { flame } from "../flame.js";
import { Grid } from "../grid.js";
import { briefCosts, costing, placeOf, rowOf, searched, totalOf, Tree } from "../optree.js";
import { inSlices } from "../slices.js";
import { viewOf, viewWith } from "../state.js";
import { detailsOf } from "./operation_details.js";
import { OperationGraph } from "./operation_graph.js";

/**
 * @typedef {import("../optree.js").Grouping} Grouping
 * @typedef {import("../optree.js").Measure} Measure
 * @typedef {import("../main.js").Context} Context
 * @typedef {import("../state.js").Selection} Selection
 */

/** @type {[Grouping, string][]} */
const GROUPINGS = [["layer", "layer"], ["operation", "operation"], ["line", "file and line"], ["vertex", "vertex"], ["program", "the program's order"]];
/** @type {[Measure, (x: number) => string][]} */
const MEASURES = [["cycles", cycles], ["bytes", bytes], ["flops", flops]];
const OPEN_MOST = 60; // of groups in an address
const SEEN = 60; // rows

/** @type {WeakMap<import("../optree.js").Costs, Map<Grouping, Tree>>} */
const trees = new WeakMap();

/** @param {import("../optree.js").Costs} found @param {Grouping} grouping */
function treeOf(found, grouping) {
  let by = trees.get(found);
  if (!by) trees.set(found, (by = new Map()));
  let tree = by.get(grouping);
  if (!tree) by.set(grouping, (tree = new Tree(found, grouping)));
  return tree;
}

/** What the page shows first of them, found ahead. @param {import("../optree.js").Costs} found @returns {Generator<void, void, void>} */
function* summing(found) {
  const tree = treeOf(found, "layer");
  for (const values of Object.values(found.parts)) { totalOf(values); yield; }
  for (const [name, values] of Object.entries({ compute: found.parts.compute, cycles: found.cycles, bytes: found.bytes, flops: found.flops, weighed: found.weighed, vertices: found.vertices, code: found.code })) {
    tree.sum(name, values);
    totalOf(values);
    yield;
  }
}

class OperationsPage {
  /** @param {Context} context @param {import("../packet.js").Table} table @param {import("../optree.js").Costs} found @param {any} summary */
  constructor(context, table, found, summary) {
    this.context = context;
    this.state = context.state;
    this.table = table;
    this.summary = summary;
    this.found = found;
    this.layers = treeOf(this.found, "layer");
    /** @type {Set<number>} */
    this.open = new Set();
    const { state } = this;
    this.search = /** @type {HTMLInputElement} */ (make("input", { type: "search", placeholder: "Name, layer, file:line or /regex/", "aria-label": "Search operations", size: 34,
      oninput: () => state.set({ search: this.search.value }, true) }));
    this.groups = this.#choice("Group by", GROUPINGS, () => this.grouping, (group) => this.setView({ group: group === "layer" ? null : group, open: null, node: null }));
    this.measures = this.#choice("Flame of", MEASURES.map(([name]) => [name, name]), () => this.measure, (measure) => this.setView({ measure: measure === "cycles" ? null : measure }));
    this.as = make("button", { "aria-pressed": String(this.view().get("as") === "graph"), onclick: () => this.setView({ as: this.view().get("as") ? null : "graph" }) }, "Graph of the data");
    this.problem = make("p", { class: "note bad", role: "status" });
    this.flame = flame({
      tree: this.layers, measure: () => this.measure, text: (node) => this.#label(this.layers, node), show: (value) => MEASURES.find(([name]) => name === this.measure)?.[1](value) ?? "",
      root: () => { const at = Number(this.view().get("flame") ?? -1); return at < this.layers.groups ? at : -1; },
      picked: (node) => {
        if (node < 0) this.setView({ flame: null });
        else if (this.layers.isGroup(node)) this.setView({ flame: node });
        else this.#select(this.layers.row(node));
      },
      chosen: () => this.chosenRow(),
    });
    const columns = this.#columns();
    this.names = columns.map((column) => column.name);
    this.keys = columns.map((column) => column.key);
    this.grid = new Grid({
      label: "Operations", what: "row", height: 460, columns: columns.map(({ key, ...column }) => ({ ...column, order: () => 0 })),
      sorted: 1, chosen: (node) => this.#chosen(node), toggled: (node) => this.#toggle(node), above: (node) => (this.searching ? -1 : this.tree.above(node)),
      fold: (node) => (this.searching || !this.tree.degree(node) ? null : this.open.has(node)),
      ordered: (column, down) => this.setView({ by: column === 1 ? null : this.names[column], up: down ? null : 1 }),
    });
    this.lower = make("div", { class: "operations-main" }, this.grid.node);
    /** @type {OperationGraph | null} */
    this.graph = null;
    if (this.view().get("as") === "graph") this.#drawGraph();
    this.side = make("aside", { class: "side", "aria-label": "Details" });
    const pipelined = totalOf(this.found.cycles) > 1.01 * this.summary.cycles;
    this.node = make("section", null,
      make("div", { class: "tools" }, this.search, this.groups, this.measures, this.as,
        make("button", { onclick: () => this.#fold(true) }, "Unfold"), make("button", { onclick: () => this.#fold(false) }, "Fold"), this.problem),
      this.flame.node,
      pipelined ? note("Operations of several IPUs overlap in a pipeline: the shares of the time add up to more than 100 %.") : null,
      make("div", { class: "split" }, this.lower, this.side),
      note("Cycles, bytes and flops are of one device iteration, all turns and calls counted. Balance: the mean time of the tiles' vertices as a share of the slowest tile's."));
    this.#openAsAsked();
    this.#refill();
    this.#aside();
    this.#show();
  }

  view() {
    return viewOf(this.state.selection);
  }
  /** @param {Record<string, string | number | null>} changes @param {boolean} [replace] */
  setView(changes, replace) {
    this.state.set({ view: viewWith(this.state.selection, changes) }, replace);
  }
  /** @returns {Grouping} */
  get grouping() {
    const asked = this.view().get("group");
    return GROUPINGS.find(([name]) => name === asked)?.[0] ?? "layer";
  }
  /** @returns {Measure} */
  get measure() {
    const asked = this.view().get("measure");
    return MEASURES.find(([name]) => name === asked)?.[0] ?? "cycles";
  }
  get tree() {
    return treeOf(this.found, this.grouping);
  }

  /** @template {string} T @param {string} label @param {[T, string][]} options @param {() => T} current @param {(value: T) => void} picked */
  #choice(label, options, current, picked) {
    return make("label", null, label + " ", select(label, options, current(), (value) => picked(/** @type {T} */ (value))));
  }

  /** @param {Tree} tree @param {number} node */
  #label(tree, node) {
    if (tree.isGroup(node)) {
      const repeats = tree.repeats(node);
      return tree.label[node] + (repeats ? ` ×${repeats}` : "");
    }
    const { table } = this, row = tree.row(node), set = tree.set(node), times = table.numbers("times")[row];
    if (set >= 0 && !tree.itemSet) return (this.found.sets.words("vertex").at(set) || "copies") + " · compute set " + plain(this.found.sets.numbers("place")[set]);
    const kind = table.words("kind").at(row), own = kind === "call" || kind === "repeat" ? " (itself)" : "";
    return table.words("name").at(row) + own + (times > 1 ? ` ×${plain(times)}` : "");
  }

  #columns() {
    const { table, found, summary } = this;
    const ipu = table.numbers("ipu"), balance = table.numbers("balance"), vertices = table.numbers("vertices"), { sets } = found;
    const value = (/** @type {number} */ node, /** @type {Measure} */ measure) => this.tree.value(node, measure);
    const known = (/** @type {number} */ x, /** @type {(x: number) => string} */ show) => (Number.isNaN(x) ? "" : show(x));
    const balanced = (/** @type {number} */ node) => {
      const { tree } = this;
      if (tree.isGroup(node)) {
        const compute = tree.sum("compute", found.parts.compute)[node];
        return compute ? tree.sum("weighed", found.weighed)[node] / compute : NaN;
      }
      const set = tree.set(node), row = tree.row(node);
      if (set >= 0) return sets.numbers("compute")[set] ? sets.numbers("busy")[set] / sets.numbers("compute")[set] / summary.tiles : NaN;
      return vertices[row] ? balance[row] : NaN;
    };
    const summed = (/** @type {number} */ node, /** @type {string} */ name, /** @type {Float64Array} */ values) => {
      const { tree } = this, set = tree.set(node);
      if (tree.isGroup(node)) return tree.sum(name, values)[node];
      return set >= 0 ? (name === "vertices" ? sets.numbers("vertices")[set] : NaN) : values[tree.row(node)];
    };
    /** @param {string} name @param {string} width @param {(node: number) => number} key @param {(x: number) => string} show @param {(x: number) => string} [exact] */
    const numbers = (name, width, key, show, exact) => ({ name, width, key, text: (/** @type {number} */ node) => known(key(node), show), title: (/** @type {number} */ node) => known(key(node), exact ?? plain) });
    /** @type {Map<import("../packet.js").Words, Int32Array>} */
    const ranks = new Map();
    /** The rank of words among words, to be sorted by. @param {import("../packet.js").Words} words @param {number} row */
    const ranked = (words, row) => {
      let rank = ranks.get(words);
      if (!rank) ranks.set(words, (rank = words.ranks()));
      return rank[words.index[row]];
    };
    const place = (/** @type {number} */ node) => (this.tree.isGroup(node) ? "" : placeOf(table, this.tree.row(node)));
    return [
      { name: "operation", width: "minmax(190px, 1fr)", words: true, text: (/** @type {number} */ node) => this.#label(this.tree, node),
        title: (/** @type {number} */ node) => this.#title(node), indent: (/** @type {number} */ node) => (this.searching ? 0 : this.tree.level(node)),
        key: (/** @type {number} */ node) => (this.tree.isGroup(node) ? node : ranked(table.words("name"), this.tree.row(node))) },
      numbers("cycles", "74px", (node) => value(node, "cycles"), short),
      numbers("share", "68px", (node) => value(node, "cycles"), (x) => percent(x, summary.cycles)),
      numbers("flops", "66px", (node) => value(node, "flops"), short),
      numbers("bytes", "76px", (node) => value(node, "bytes"), shortBytes),
      numbers("balance", "76px", balanced, (x) => percent(x, 1), (x) => percent(x, 1)),
      numbers("IPU", "40px", (node) => (this.tree.isGroup(node) ? NaN : ipu[this.tree.row(node)]), (x) => (x < 0 ? "all" : String(x))),
      { name: "line", width: "minmax(104px, 0.5fr)", words: true, text: (/** @type {number} */ node) => place(node).replace(/^.+(?=.{13}$)/, "…"), title: (/** @type {number} */ node) => (this.tree.isGroup(node) ? "" : table.words("file").at(this.tree.row(node)) + ":" + table.numbers("line")[this.tree.row(node)]),
        key: (/** @type {number} */ node) => (this.tree.isGroup(node) ? -1 : ranked(table.words("file"), this.tree.row(node)) * 1e7 + table.numbers("line")[this.tree.row(node)]) },
      numbers("vertices", "74px", (node) => summed(node, "vertices", found.vertices), short),
      numbers("code", "76px", (node) => summed(node, "code", found.code), shortBytes),
    ];
  }

  /** The graph in the place of the tree. */
  async #drawGraph() {
    this.lower.replaceChildren(note("The graph is being laid out …"));
    try {
      const [tensors, flow, moments] = await Promise.all([this.context.table("tensors"), this.context.table("flow"), this.context.table("moments")]), asked = this.view().get("graph");
      this.graph = new OperationGraph({
        tree: this.layers, tensors, flow, moments, text: (node) => this.#label(this.layers, node), chosen: () => this.chosenRow(), picked: (row) => this.#select(row),
        open: asked === null ? null : new Set(asked === "all" ? Array.from({ length: this.layers.groups }, (_, group) => group) : asked.split(".").filter(Boolean).map((id) => parseInt(id, 36))),
        folded: (open) => this.setView({ graph: open.size === this.layers.groups || open.size > OPEN_MOST ? "all" : [...open].map((id) => id.toString(36)).join(".") || "." }, true),
      });
      this.lower.replaceChildren(this.graph.node);
    } catch (error) {
      this.lower.replaceChildren(problem(error, "The graph cannot be drawn: "));
    }
  }

  /** @param {number} node */
  #title(node) {
    const { tree, table } = this;
    if (tree.isGroup(node)) return `${tree.label[node]}: ${many(tree.size[node], "operation")}`;
    const row = tree.row(node), layer = table.words("layer").at(row);
    return [table.words("name").at(row), table.words("types").at(row), layer ? "in " + layer : "", placeOf(table, row)].filter(Boolean).join("\n");
  }

  get searching() {
    return this.state.selection.search !== "";
  }
  chosenRow() {
    return rowOf(this.table, this.state.selection.operation);
  }

  /** What the address says is open, and the groups around what is chosen. */
  #openAsAsked() {
    const asked = this.view().get("open");
    this.open = new Set(asked === "all" ? this.#all() : asked === "none" ? [] : (asked ?? "").split(".").filter(Boolean).map((id) => parseInt(id, 36)));
    if (asked !== null) return;
    // Nothing is asked for: the largest groups open, as long as all of it can be seen at once.
    let seen = this.tree.children(-1).length;
    for (let more = true; more;) {
      more = false;
      for (const node of this.tree.visible(this.open, this.keys[1], true, this.names[1])) {
        const inside = this.tree.degree(node);
        if (!this.tree.isGroup(node) || this.open.has(node) || seen + inside > SEEN) continue;
        this.open.add(node);
        seen += inside;
        more = true;
        break;
      }
    }
  }
  #all() {
    const { tree } = this;
    return Array.from({ length: tree.groups }, (_, group) => group);
  }
  /** @param {boolean} all */
  #fold(all) {
    this.setView({ open: all ? "all" : "none" });
    if (!all) { this.open.clear(); this.#refill(); }
  }
  /** @param {number} node */
  #toggle(node) {
    if (this.searching || !this.tree.degree(node)) return;
    if (this.open.has(node)) this.open.delete(node);
    else this.open.add(node);
    this.kept = true;
    const open = [...this.open];
    this.setView({ open: open.length > OPEN_MOST ? "all" : open.map((id) => id.toString(36)).join(".") || "none" }, true);
    this.kept = false;
    this.#refill();
  }

  #refill() {
    const { tree, grid } = this, view = this.view();
    const column = Math.max(0, view.get("by") ? this.names.indexOf(view.get("by") ?? "") : 1), down = !view.get("up");
    const key = view.get("by") === "operation" && this.grouping === "program" ? null : this.keys[column];
    this.problem.textContent = "";
    grid.by = column;
    grid.down = down;
    if (this.searching) {
      try {
        const hit = searched(this.table, this.state.selection.search), order = tree.flat(key, down, this.names[column]), rows = new Int32Array(order.length);
        let count = 0;
        for (let i = 0; i < order.length; i++) if (hit[tree.itemRow[order[i] - tree.groups]]) rows[count++] = order[i];
        grid.fill(rows.slice(0, count));
      } catch (error) {
        this.problem.textContent = `This is no regular expression: ${error instanceof Error ? error.message : error}`;
        grid.fill(new Int32Array(0));
      }
    } else grid.fill(tree.visible(this.open, key, down, this.names[column]));
  }

  /** Bring what is chosen into sight. */
  #show() {
    const { tree, grid } = this, row = this.chosenRow();
    if (row < 0) {
      const group = Number(this.view().get("node") ?? -1);
      if (group >= 0 && group < tree.groups) grid.reveal(group);
      else if (grid.current >= 0 && !tree.isGroup(grid.current)) grid.reveal(-1);
      return;
    }
    if (grid.current >= 0 && grid.rows.includes(grid.current) && tree.row(grid.current) === row && !tree.isGroup(grid.current)) return;
    const item = tree.itemRow.indexOf(row);
    if (item < 0) return;
    const node = tree.groups + item;
    let fresh = false;
    for (let above = tree.above(node); above >= 0 && !this.searching; above = tree.above(above)) if (!this.open.has(above)) { this.open.add(above); fresh = true; }
    if (fresh) this.#refill();
    grid.reveal(node);
  }

  /** @param {number} node */
  #chosen(node) {
    const { tree } = this;
    if (tree.isGroup(node)) this.state.set({ operation: null, view: viewWith(this.state.selection, { node }) }, true);
    else this.#select(tree.row(node));
  }
  /** @param {number} row */
  #select(row) {
    this.state.set({ operation: this.table.words("key").at(row), view: viewWith(this.state.selection, { node: null }) }, true);
  }

  #aside() {
    const row = this.chosenRow(), group = Number(this.view().get("node") ?? -1);
    this.side.replaceChildren(detailsOf(this.context, this.found, this.tree, row >= 0 ? row : -1, row < 0 && group < this.tree.groups ? group : -1, this.summary));
  }

  /** @param {Selection} now @param {Selection} before */
  update(now, before) {
    if (this.kept) return true;
    const [a, b] = [viewOf(now), viewOf(before)], changed = (/** @type {string} */ name) => a.get(name) !== b.get(name);
    if (changed("group") || changed("as")) return false;
    if (now.search !== before.search && this.search.value !== now.search) this.search.value = now.search;
    if (changed("open")) this.#openAsAsked();
    if (changed("open") || changed("by") || changed("up") || now.search !== before.search) this.#refill();
    if (changed("measure") || changed("flame") || now.operation !== before.operation) this.flame.repaint();
    if (changed("node") || now.operation !== before.operation) {
      this.#show();
      this.#aside();
      this.graph?.follow();
    }
    return true;
  }
}

/** @type {import("../main.js").Page} */
export const operations = {
  name: "operations",
  title: "Operations",
  keep: true,
  needs: ["operations", "sets"],
  brief: { operations: "operations" },
  async show(context) {
    const [table, sets, summary] = await Promise.all([context.table("operations"), context.brief ? null : context.table("sets"), context.json("summary")]);
    const found = sets ? await inSlices(costing(table, sets)) : briefCosts(table);
    if (sets) await inSlices(summing(found));
    const page = new OperationsPage(context, table, found, summary);
    page.search.value = context.state.selection.search;
    return { node: page.node, update: (now, before) => page.update(now, before) };
  },
};
