// Operations as a tree: grouped by layer, name, line, vertex or as the program runs them, summed, sorted and searched.
// No elements here, so that it can be tested, and timed, without a browser.

import { atOnce } from "./slices.js";

/**
 * @typedef {import("./packet.js").Table} Table
 * @typedef {import("./packet.js").Words} Words
 * @typedef {"layer" | "operation" | "line" | "vertex" | "program"} Grouping
 * @typedef {"cycles" | "bytes" | "flops"} Measure
 */

export const PARTS = ["compute", "exchange", "links", "sync", "host", "bubble", "overhead"];

/**
 * What each operation takes in one device iteration, its turns counted. A call or a repeat has what remains of it beside
 * its body: copies in and out, a pipeline's bubble.
 * @typedef {{
 *   table: Table, sets: Table, count: number, members: Int32Array, parts: Record<string, Float64Array>,
 *   cycles: Float64Array, bytes: Float64Array, flops: Float64Array, weighed: Float64Array, vertices: Float64Array, code: Float64Array,
 *   firstSet: Int32Array, setStop: Int32Array, each: Int32Array | null,
 * }} Costs
 * `each`: of costs in brief, how many operations a row stands for (one of several is not shown itself);
 * `members`: rows that take time or do something; `weighed`: compute cycles times balance; `code`: bytes, those of equal
 * plans once; `firstSet` to `setStop`: the
 * rows of `sets` of an operation.
 */

/** @type {WeakMap<Table, Costs>} */
const known = new WeakMap();

/** @param {Table} table of operations @param {Table} sets */
export const costs = (table, sets) => atOnce(costing(table, sets));

/** @param {Table} table of operations @param {Table} sets @returns {Generator<void, Costs, void>} */
export function* costing(table, sets) {
  const before = known.get(table);
  if (before) return before;
  const n = table.count, times = table.numbers("times"), count = table.numbers("count"), kind = table.words("kind");
  const folded = kind.distinct.map((word) => word === "call" || word === "repeat");
  const inside = table.words("function").index, callee = calleeOf(table), runs = runsOf(table, callee);
  /** @type {Record<string, Float64Array>} */
  const parts = {};
  const cycles = new Float64Array(n), body = new Float64Array(runs.length);
  for (const part of PARTS) {
    const once = table.numbers(part), own = (parts[part] = new Float64Array(n));
    body.fill(0);
    for (let i = 0; i < n; i++) body[inside[i]] += once[i] * times[i];
    for (let i = 0; i < n; i++) {
      own[i] = once[i] * times[i];
      if (!folded[kind.index[i]]) continue;
      if (callee[i] >= 0) own[i] -= (body[callee[i]] / runs[callee[i]]) * times[i] * count[i];
      if (own[i] < 0.5) own[i] = 0; // of a pipeline the bodies overlap
    }
    for (let i = 0; i < n; i++) cycles[i] += own[i];
    yield;
  }
  const bytes = new Float64Array(n), flops = new Float64Array(n), weighed = new Float64Array(n);
  const [near, far, streamed, arithmetic, balance] = ["exchange_bytes", "link_bytes", "streamed_bytes", "flops", "balance"].map((name) => table.numbers(name));
  let used = 0;
  const members = new Int32Array(n);
  for (let i = 0; i < n; i++) {
    if (!folded[kind.index[i]]) {
      bytes[i] = (near[i] + far[i] + streamed[i]) * times[i];
      flops[i] = arithmetic[i] * times[i];
      weighed[i] = parts.compute[i] * balance[i];
    } else if (!cycles[i]) continue;
    members[used++] = i;
  }
  yield;
  const firstSet = new Int32Array(n), setStop = new Int32Array(n);
  const of = sets.numbers("operation"), like = table.has("like") ? table.numbers("like") : null;
  for (let s = 0; s < sets.count; s++) {
    if (s === 0 || of[s] !== of[s - 1]) firstSet[of[s]] = s;
    setStop[of[s]] = s + 1;
  }
  if (like) for (let i = 0; i < n; i++) if (like[i] >= 0) { firstSet[i] = firstSet[like[i]]; setStop[i] = setStop[like[i]]; }
  const [vertices, code] = ["vertices", "code_bytes"].map((name) => Float64Array.from(table.numbers(name)));
  if (like) for (let i = 0; i < n; i++) if (like[i] >= 0 && like[i] !== i) code[i] = 0;
  const answer = { table, sets, count: n, members: members.slice(0, used), parts, cycles, bytes, flops, weighed, vertices, code, firstSet, setStop, each: null };
  known.set(table, answer);
  return answer;
}

/** Those that the store has summed up already. @param {Table} table `operations` in brief @returns {Costs} */
export function briefCosts(table) {
  const sum = (/** @type {string} */ name) => Float64Array.from(table.numbers(name)), ids = Int32Array.from({ length: table.count }, (_, i) => i);
  return {
    table, sets: table, count: table.count, members: ids, parts: Object.fromEntries(PARTS.map((name) => [name, sum(name)])),
    cycles: sum("cycles"), bytes: sum("bytes"), flops: sum("flops"), weighed: sum("weighed"), vertices: sum("vertices"), code: sum("code_bytes"),
    firstSet: new Int32Array(table.count), setStop: Int32Array.from(table.numbers("sets")), each: Int32Array.from(table.numbers("each")),
  };
}

/** @type {WeakMap<Float64Array, number>} */
const added = new WeakMap();

/** The sum of a column, found once. @param {Float64Array} values */
export function totalOf(values) {
  let sum = added.get(values);
  if (sum === undefined) added.set(values, (sum = values.reduce((all, value) => all + value, 0)));
  return sum;
}

/** The function, as a place among the words of `function`, that a call or repeat runs; -1 of all others. @param {Table} table */
function calleeOf(table) {
  const functions = table.words("function").distinct, callees = table.words("callee");
  const place = new Map(functions.map((name, i) => [name, i])), known = callees.distinct.map((name) => (name === "" ? -1 : place.get(name) ?? -1));
  const { index } = callees, found = new Int32Array(index.length);
  for (let i = 0; i < found.length; i++) found[i] = known[index[i]];
  return found;
}

/** How often each function is run in a device iteration, at least once. @param {Table} table @param {Int32Array} callee */
function runsOf(table, callee) {
  const runs = new Float64Array(table.words("function").distinct.length), times = table.numbers("times"), count = table.numbers("count");
  for (let i = 0; i < callee.length; i++) if (callee[i] >= 0) runs[callee[i]] += times[i] * count[i];
  return runs.map((value) => value || 1);
}

/** The row of a stable key, or -1. @param {Table} table @param {string | null} key */
export function rowOf(table, key) {
  if (key === null) return -1;
  const keys = table.words("key"), word = keys.distinct.indexOf(key);
  return word < 0 ? -1 : keys.index.indexOf(word);
}

/** The text of a line of the user's, or "". @param {Table} table @param {number} row */
export function placeOf(table, row) {
  const file = table.words("file").at(row);
  return file ? `${file.split("/").at(-1)}:${table.numbers("line")[row]}` : "";
}

/** @param {number} n @param {Int32Array} of group of each, or -1 @param {number} groups @returns {[Int32Array, Int32Array]} members in order of group, and where each group's begin; the last is of those without */
function gathered(n, of, groups) {
  const start = new Int32Array(groups + 2);
  for (let i = 0; i < n; i++) start[(of[i] < 0 ? groups : of[i]) + 1]++;
  for (let g = 0; g <= groups; g++) start[g + 1] += start[g];
  const place = start.slice(), members = new Int32Array(n);
  for (let i = 0; i < n; i++) members[place[of[i] < 0 ? groups : of[i]]++] = i;
  return [members, start];
}

/** Groups, parents before their children, and the group of each item. */
class Groups {
  constructor() {
    /** @type {string[]} */
    this.label = [];
    /** @type {number[]} */
    this.parent = [];
    /** @type {Map<string, number>} */
    this.by = new Map();
    this.before = { path: "", id: -1 };
  }
  /** @param {number} parent @param {string} label */
  under(parent, label) {
    const key = parent + "\n" + label;
    let id = this.by.get(key);
    if (id === undefined) {
      id = this.label.length;
      this.label.push(label);
      this.parent.push(parent);
      this.by.set(key, id);
    }
    return id;
  }
  /** The group of a layer. Most have the beginning of the one before: that is not looked up again. @param {string} layer */
  path(layer) {
    const dot = layer.lastIndexOf("."), above = layer.slice(0, Math.max(0, dot));
    if (above !== this.before.path || !above) this.before = { path: above, id: above.split(".").reduce((id, part) => (above ? this.under(id, part) : -1), -1) };
    return this.under(this.before.id, layer.slice(dot + 1));
  }
}

/** The group of each member, asked for once a word. @param {Words} words @param {Int32Array} of @param {Int32Array} members @param {(word: string) => number} group */
function each(words, of, members, group) {
  const made = new Int32Array(words.distinct.length).fill(-1);
  for (let i = 0; i < of.length; i++) {
    const word = words.index[members[i]];
    if (made[word] < 0) made[word] = group(words.distinct[word]);
    of[i] = made[word];
  }
}

/**
 * Groups numbered anew; with `join` without those that hold nothing but one other group, whose name gets theirs before it.
 * @param {Groups} groups @param {Int32Array} of group of each item @param {boolean} join
 */
function settle(groups, of, join) {
  const total = groups.label.length, inside = new Int32Array(total), direct = new Int32Array(total), fresh = new Int32Array(total);
  for (const parent of groups.parent) if (parent >= 0) inside[parent]++;
  for (const group of of) if (group >= 0) direct[group]++;
  /** @type {string[]} */
  const label = [];
  /** @type {number[]} */
  const parent = [];
  for (let g = 0; g < total; g++) {
    const above = groups.parent[g];
    if (join && above >= 0 && inside[above] === 1 && direct[above] === 0) {
      fresh[g] = fresh[above];
      label[fresh[g]] += "." + groups.label[g];
      continue;
    }
    fresh[g] = label.length;
    label.push(groups.label[g]);
    parent.push(above < 0 ? -1 : fresh[above]);
  }
  return { label, parent: Int32Array.from(parent), of: of.map((group) => (group < 0 ? -1 : fresh[group])) };
}

/**
 * A tree of groups, operations and compute sets. Its nodes are numbers: first the groups, then the items (an operation,
 * or by vertex what an operation spends in it), then the compute sets under each item.
 */
export class Tree {
  /** @param {Costs} costs @param {Grouping} grouping */
  constructor(costs, grouping) {
    this.costs = costs;
    this.grouping = grouping;
    const { table, sets, members } = costs, groups = new Groups();
    /** Item: its operation, and its compute set where it is one. */
    this.itemRow = members;
    /** @type {Int32Array | null} */
    this.itemSet = null;
    let of = new Int32Array(members.length);
    if (grouping === "layer") {
      each(table.words("layer"), of, members, (layer) => (layer === "" ? groups.under(-1, "(no layer)") : groups.path(layer)));
    } else if (grouping === "operation") {
      each(table.words("name"), of, members, (name) => groups.under(-1, name));
    } else if (grouping === "line") {
      const files = table.words("file"), line = table.numbers("line");
      each(files, of, members, (file) => groups.under(-1, file || "(no file)"));
      for (let i = 0; i < of.length; i++) if (files.at(members[i])) of[i] = groups.under(of[i], "line " + line[members[i]]);
    } else if (grouping === "program") {
      // A function is where it is first run from; all its runs are one.
      const functions = table.words("function"), callee = calleeOf(table), runs = runsOf(table, callee), caller = new Int32Array(runs.length).fill(-1);
      for (let i = 0; i < table.count; i++) if (callee[i] >= 0 && caller[callee[i]] < 0) caller[callee[i]] = i;
      /** @type {(place: number) => number} */
      const made = (place) => (caller[place] < 0 ? -1 : groups.under(made(functions.index[caller[place]]), functions.distinct[place] + (runs[place] > 1 ? ` ×${runs[place]}` : "")));
      each(functions, of, members, (name) => made(functions.distinct.indexOf(name)));
    } else {
      let count = 0;
      for (const row of members) count += Math.max(1, costs.setStop[row] - costs.firstSet[row]);
      const rows = (this.itemRow = new Int32Array(count)), which = (this.itemSet = new Int32Array(count).fill(-1));
      of = new Int32Array(count);
      let at = 0;
      for (const row of members) {
        for (let s = costs.firstSet[row]; s < costs.setStop[row]; s++, at++) { rows[at] = row; which[at] = s; }
        if (costs.firstSet[row] === costs.setStop[row]) rows[at++] = row;
      }
      const vertices = sets.words("vertex");
      for (let i = 0; i < count; i++) of[i] = groups.under(-1, which[i] < 0 ? "(no vertex)" : vertices.at(which[i]) || "(copies)");
    }
    const settled = settle(groups, of, grouping === "layer");
    this.label = settled.label;
    this.parent = settled.parent;
    this.groups = settled.label.length;
    this.itemGroup = settled.of;
    this.depth = new Int32Array(this.groups);
    for (let g = 0; g < this.groups; g++) this.depth[g] = this.parent[g] < 0 ? 0 : this.depth[this.parent[g]] + 1;
    const within = gathered(this.groups, this.parent, this.groups), held = gathered(of.length, this.itemGroup, this.groups);
    this.subgroups = within[0];
    this.subgroupStart = within[1];
    this.inGroup = held[0];
    this.inGroupStart = held[1];
    /** Operations in a group, and in all under it. */
    this.size = new Int32Array(this.groups);
    for (const [i, group] of this.itemGroup.entries()) if (group >= 0) this.size[group] += costs.each?.[this.itemRow[i]] ?? 1;
    this.direct = this.size.slice();
    for (let g = this.groups - 1; g >= 0; g--) if (this.parent[g] >= 0) this.size[this.parent[g]] += this.size[g];
    this.items = this.itemRow.length;
    this.pairStart = new Int32Array(this.items + 1);
    for (let i = 0; i < this.items; i++) {
      const row = this.itemRow[i];
      this.pairStart[i + 1] = this.pairStart[i] + (this.itemSet ? 0 : costs.setStop[row] - costs.firstSet[row]);
    }
    /** Sums of groups, by measure. @type {Map<string, Float64Array>} */
    this.sums = new Map();
    /** @type {Map<string, Int32Array>} */
    this.orders = new Map();
  }

  /** @param {number} node */
  isGroup(node) { return node < this.groups; }
  /** @param {number} node @returns {number} its item, or -1 of a group */
  item(node) {
    if (node < this.groups) return -1;
    if (node < this.groups + this.items) return node - this.groups;
    const pair = node - this.groups - this.items;
    let [low, high] = [0, this.items - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.pairStart[middle] <= pair) low = middle;
      else high = middle - 1;
    }
    return low;
  }
  /** @param {number} node @returns {number} its operation, or -1 of a group */
  row(node) {
    const item = this.item(node);
    return item < 0 ? -1 : this.itemRow[item];
  }
  /** @param {number} node @returns {number} its compute set, or -1 */
  set(node) {
    const item = this.item(node);
    if (item < 0) return -1;
    if (node < this.groups + this.items) return this.itemSet ? this.itemSet[item] : -1;
    return this.costs.firstSet[this.itemRow[item]] + (node - this.groups - this.items - this.pairStart[item]);
  }
  /** @param {number} node */
  above(node) {
    if (node < this.groups) return this.parent[node];
    const item = this.item(node);
    return node < this.groups + this.items ? this.itemGroup[item] : this.groups + item;
  }
  /** @param {number} node */
  level(node) {
    if (node < this.groups) return this.depth[node];
    const group = this.itemGroup[this.item(node)];
    return (group < 0 ? 0 : this.depth[group] + 1) + (node < this.groups + this.items ? 0 : 1);
  }
  /** How many nodes are directly under it. @param {number} node */
  degree(node) {
    if (node < this.groups) return this.subgroupStart[node + 1] - this.subgroupStart[node] + this.direct[node];
    if (node >= this.groups + this.items) return 0;
    return this.pairStart[node - this.groups + 1] - this.pairStart[node - this.groups];
  }
  /** How many operations a node is that is no group: several only in brief. @param {number} node */
  each(node) {
    return this.costs.each?.[this.row(node)] ?? 1;
  }
  /** Whether all under a group are numbered repeats of each other, as the layers of an encoder are. @param {number} node */
  repeats(node) {
    if (node >= this.groups || this.inGroupStart[node] !== this.inGroupStart[node + 1]) return 0;
    const [a, b] = [this.subgroupStart[node], this.subgroupStart[node + 1]];
    if (b - a < 2) return 0;
    for (let i = a; i < b; i++) if (!/^\d+(\.|$)/.test(this.label[this.subgroups[i]])) return 0;
    return b - a;
  }
  /** Under a node, or at the top for -1, in the order of the program. @param {number} node @returns {Int32Array} */
  children(node) {
    const group = node < 0 ? this.groups : node;
    if (node >= this.groups) {
      const item = node - this.groups, first = this.groups + this.items + this.pairStart[item];
      return Int32Array.from({ length: this.degree(node) }, (_, i) => first + i);
    }
    const under = this.subgroups.subarray(this.subgroupStart[group], this.subgroupStart[group + 1]);
    const items = this.inGroup.subarray(this.inGroupStart[group], this.inGroupStart[group + 1]);
    const all = new Int32Array(under.length + items.length);
    all.set(under);
    for (let i = 0; i < items.length; i++) all[under.length + i] = this.groups + items[i];
    return all;
  }

  /** Sum of a column of operations, by group. @param {string} name @param {Float64Array} values by operation @returns {Float64Array} */
  sum(name, values) {
    let sums = this.sums.get(name);
    if (sums) return sums;
    sums = new Float64Array(this.groups);
    for (let i = 0; i < this.items; i++) {
      const group = this.itemGroup[i];
      if (group >= 0) sums[group] += this.itemSet ? this.#share(i, name, values) : values[this.itemRow[i]];
    }
    for (let g = this.groups - 1; g >= 0; g--) if (this.parent[g] >= 0) sums[this.parent[g]] += sums[g];
    this.sums.set(name, sums);
    return sums;
  }

  /** What of an operation's value is its compute set's. @param {number} item @param {string} name @param {Float64Array} values */
  #share(item, name, values) {
    const set = /** @type {Int32Array} */ (this.itemSet)[item], row = this.itemRow[item];
    if (set < 0) return values[row];
    if (name === "cycles") return this.setCycles(set) * this.costs.table.numbers("times")[row];
    if (name === "bytes") return this.setBytes(set) * this.costs.table.numbers("times")[row];
    return set === this.costs.firstSet[row] ? values[row] : 0;
  }

  /** @param {number} set cycles of a compute set each time it runs */
  setCycles(set) {
    const { sets } = this.costs;
    return sets.numbers("compute")[set] + sets.numbers("exchange")[set] + sets.numbers("links")[set] + sets.numbers("sync")[set];
  }
  /** @param {number} set bytes that its tiles receive, over links too */
  setBytes(set) {
    const { sets } = this.costs;
    return sets.numbers("received_bytes")[set] + sets.numbers("linked_bytes")[set];
  }

  /** Of a node: cycles, bytes or flops in one device iteration; those of a compute set's flops are not known.
   * @param {number} node @param {Measure} measure */
  value(node, measure) {
    const { costs } = this;
    if (node < this.groups) return this.sum(measure, costs[measure])[node];
    const set = this.set(node), row = this.itemRow[this.item(node)];
    if (set < 0) return costs[measure][row];
    const times = costs.table.numbers("times")[row];
    return measure === "cycles" ? this.setCycles(set) * times : measure === "bytes" ? this.setBytes(set) * times : NaN;
  }

  /** Nodes in the order of a key, the program's order among equals. @param {Int32Array} nodes @param {(node: number) => number} key @param {boolean} down */
  static ordered(nodes, key, down) {
    const keys = Float64Array.from(nodes, (node) => { const k = key(node); return Number.isNaN(k) ? -Infinity : k; });
    const sign = down ? -1 : 1;
    return Int32Array.from(nodes, (_, i) => i).sort((a, b) => sign * (keys[a] - keys[b]) || a - b).map((i) => nodes[i]);
  }

  /** The nodes in sight: those whose parents are open.
   * @param {Set<number>} open @param {((node: number) => number) | null} key that sorts siblings @param {boolean} down @param {string} name of the key */
  visible(open, key, down, name) {
    const sorted = (/** @type {number} */ node) => {
      if (!key) return this.children(node);
      const at = `${name} ${down} ${node}`;
      let order = this.orders.get(at);
      if (!order) { order = Tree.ordered(this.children(node), key, down); this.orders.set(at, order); }
      return order;
    };
    /** @type {number[]} */
    const rows = [];
    /** @type {[Int32Array, number][]} */
    const stack = [[sorted(-1), 0]];
    while (stack.length) {
      const top = stack[stack.length - 1];
      if (top[1] >= top[0].length) { stack.pop(); continue; }
      const node = top[0][top[1]++];
      rows.push(node);
      if (open.has(node) && this.degree(node)) stack.push([sorted(node), 0]);
    }
    return Int32Array.from(rows);
  }

  /** All items in the order of a key. @param {((node: number) => number) | null} key @param {boolean} down @param {string} name */
  flat(key, down, name) {
    const at = `${name} ${down} all`;
    let order = this.orders.get(at);
    if (!order) {
      const all = Int32Array.from({ length: this.items }, (_, i) => this.groups + i);
      order = key ? Tree.ordered(all, key, down) : all;
      this.orders.set(at, order);
    }
    return order;
  }
}

/** @type {WeakMap<Words, string[]>} */
const lowered = new WeakMap();

/** @param {Words} words @param {(text: string, lower: string) => boolean} hit @returns {Uint8Array} by distinct word */
function hits(words, hit) {
  let lower = lowered.get(words);
  if (!lower) { lower = words.distinct.map((word) => word.toLowerCase()); lowered.set(words, lower); }
  const found = new Uint8Array(words.distinct.length);
  for (let i = 0; i < found.length; i++) if (hit(words.distinct[i], lower[i])) found[i] = 1;
  return found;
}

/**
 * Whether a text holds the words that are searched, or matches what stands between slashes; no regular expression there
 * is a `SyntaxError`.
 * @param {string} searched @returns {(text: string, lower?: string) => boolean}
 */
export function matching(searched) {
  const written = /^\/(.*)\/([a-z]*)$/.exec(searched), wanted = searched.toLowerCase();
  if (!written) return (text, lower = text.toLowerCase()) => lower.includes(wanted);
  const expression = new RegExp(written[1], written[2].includes("i") ? "i" : "");
  return (text) => expression.test(text);
}

/**
 * Which operations a search finds: those whose name, layer, file (`model.py:62` for a line) or types hold the words, or
 * match what stands between slashes.
 * @param {Table} table @param {string} text @returns {Uint8Array} by operation
 */
export function searched(table, text) {
  const found = new Uint8Array(table.count), hit = matching(text);
  for (const name of ["name", "layer", "file", "types"]) {
    const words = table.words(name), by = hits(words, hit), { index } = words;
    if (by.includes(1)) for (let i = 0; i < found.length; i++) found[i] |= by[index[i]];
  }
  const place = /^(.+):(\d+)$/.exec(text);
  if (place) {
    const files = table.words("file"), by = hits(files, (_, lower) => lower.endsWith(place[1].toLowerCase())), line = table.numbers("line");
    for (let i = 0; i < found.length; i++) if (by[files.index[i]] && line[i] === Number(place[2])) found[i] = 1;
  }
  return found;
}
