// Bytes between groups of tiles, summed over the operations of a scope. The store has them for one run of each distinct
// operation; here each counts as often as a device iteration runs it.

import { RowsBy } from "../../tiles.js";

/**
 * @typedef {import("../../packet.js").Table} Table
 * @typedef {{from: number, to: number, bytes: number}} Flow between groups, each numbered `ipu × groups + group`
 */

/** Operations of a scope, and how often each counts. */
export class Scope {
  /** @param {Table} operations @param {Table | null} moments of a range @param {import("../../main.js").Selection} selection @param {string} kind `program`, `operation` or `range` */
  constructor(operations, moments, selection, kind) {
    const times = operations.numbers("times");
    this.weights = new Float64Array(operations.count);
    this.operations = operations;
    if (kind === "operation" && selection.operation !== null) {
      for (const [operation, share] of within(operations, selection.operation)) this.weights[operation] = times[operation] * share;
    } else if (kind === "range" && moments && selection.from !== null && selection.to !== null) {
      // A function that several calls run is on the line once for each: its operations' runs are shared out evenly.
      const at = moments.numbers("operation"), all = new Float64Array(operations.count);
      for (let i = 0; i < moments.count; i++) if (at[i] >= 0) all[at[i]]++;
      for (let i = selection.from; i <= Math.min(selection.to, moments.count - 1); i++) if (at[i] >= 0) this.weights[at[i]] += times[at[i]] / all[at[i]];
    } else this.weights.set(times);
    const kinds = operations.words("kind"), nested = kinds.distinct.map((word) => word === "call" || word === "repeat");
    for (let i = 0; i < operations.count; i++) if (nested[kinds.index[i]]) this.weights[i] = 0; // what they run is there itself
  }
  /** The sum of a column over the scope. @param {string} name */
  sum(name) {
    const column = this.operations.numbers(name);
    let sum = 0;
    for (let i = 0; i < column.length; i++) sum += column[i] * this.weights[i];
    return sum;
  }
}

/** The operation with that key and what it runs, each with its share of the runs: a function may have other callers.
 * @param {Table} operations @param {string} key @returns {Map<number, number>} */
function within(operations, key) {
  const keys = operations.words("key"), callees = operations.words("callee"), functions = operations.words("function"), root = keys.distinct.indexOf(key);
  const runs = (/** @type {number} */ i) => operations.numbers("times")[i] * operations.numbers("count")[i];
  const inside = new RowsBy(functions.index), callers = new RowsBy(callees.index), found = new Map(), open = /** @type {[number, number][]} */ ([]);
  for (let i = 0; root >= 0 && i < operations.count; i++) if (keys.index[i] === root) open.push([i, 1]);
  for (const [row, share] of open) { // grows
    found.set(row, Math.min(1, (found.get(row) ?? 0) + share));
    const callee = callees.at(row);
    if (!callee) continue;
    const all = callers.of(callees.index[row]).reduce((sum, i) => sum + runs(i), 0);
    for (const each of inside.of(functions.distinct.indexOf(callee))) open.push([each, (share * runs(row)) / all]);
  }
  return found;
}

/** Bytes of a scope between groups. */
export class Flows {
  /** @param {Table} traffic @param {Scope} scope @param {boolean} links over links, or received by tiles @param {number} groups of an IPU */
  constructor(traffic, scope, links, groups) {
    this.traffic = traffic;
    this.scope = scope;
    this.links = links;
    this.groups = groups;
    this.counts = new Float64Array(scope.operations.count); // of each operation and all that are like it
    const like = scope.operations.numbers("like");
    for (let i = 0; i < like.length; i++) if (like[i] >= 0) this.counts[like[i]] += scope.weights[i];
    this.columns = Object.fromEntries(["operation", "source_ipu", "source_group", "target_ipu", "target_group", "bytes", "links"].map((name) => [name, traffic.numbers(name)]));
    this.total = 0;
    this.ipus = 1;
    const { operation, source_ipu, target_ipu, source_group, target_group, bytes, links: linked } = this.columns;
    for (let i = 0; i < traffic.count; i++) this.ipus = Math.max(this.ipus, source_ipu[i] + 1, target_ipu[i] + 1);
    /** Bytes between the groups of each two IPUs that have any, `[source × groups + target]`. @type {Map<number, Float64Array>} */
    this.squares = new Map();
    for (let i = 0; i < traffic.count; i++) {
      const moved = bytes[i] * this.counts[operation[i]];
      if (!moved || Boolean(linked[i]) !== links) continue;
      const pair = source_ipu[i] * this.ipus + target_ipu[i];
      let square = this.squares.get(pair);
      if (!square) this.squares.set(pair, (square = new Float64Array(groups * groups)));
      square[source_group[i] * groups + target_group[i]] += moved;
      this.total += moved;
    }
    /** @type {Flow[]} largest first */
    this.flows = [];
    for (const [pair, square] of this.squares) {
      const from = Math.floor(pair / this.ipus) * groups, to = (pair % this.ipus) * groups;
      for (let i = 0; i < square.length; i++) if (square[i]) this.flows.push({ from: from + Math.floor(i / groups), to: to + (i % groups), bytes: square[i] });
    }
    /** @type {{from?: [number, number][], to?: [number, number][]}} */
    this.sums = {};
    this.flows.sort((a, b) => b.bytes - a.bytes);
  }
  /** @param {number} row of the traffic @returns {[number, number]} */
  ends(row) {
    const { source_ipu, source_group, target_ipu, target_group } = this.columns;
    return [source_ipu[row] * this.groups + source_group[row], target_ipu[row] * this.groups + target_group[row]];
  }
  /** Bytes that each group sends, or receives, largest first. @param {"from" | "to"} end @returns {[number, number][]} */
  by(end) {
    let found = this.sums[end];
    if (!found) {
      const sums = new Map();
      for (const flow of this.flows) sums.set(flow[end], (sums.get(flow[end]) ?? 0) + flow.bytes);
      this.sums[end] = found = [...sums].sort((a, b) => b[1] - a[1]);
    }
    return found;
  }
  /** Bytes between IPUs, `[source × ipus + target]`. */
  between() {
    const found = new Float64Array(this.ipus * this.ipus);
    for (const [pair, square] of this.squares) found[pair] = square.reduce((sum, bytes) => sum + bytes, 0);
    return found;
  }
  /** Bytes between the groups of two IPUs, or of all with themselves. @param {[number, number] | null} pair */
  matrix(pair) {
    const { groups } = this;
    if (pair) return this.squares.get(pair[0] * this.ipus + pair[1]) ?? new Float64Array(groups * groups);
    const across = groups * this.ipus, found = new Float64Array(across * across);
    for (const { from, to, bytes } of this.flows) found[from * across + to] = bytes;
    return found;
  }
  /** The operations that move bytes between groups, largest first: number and bytes. @param {(from: number, to: number) => boolean} wanted @returns {[number, number][]} */
  operations(wanted) {
    const { operation, bytes, links } = this.columns, likes = new Map();
    for (let i = 0; i < this.traffic.count; i++) {
      if (Boolean(links[i]) === this.links && this.counts[operation[i]] && wanted(...this.ends(i))) likes.set(operation[i], (likes.get(operation[i]) ?? 0) + bytes[i]);
    }
    const like = this.scope.operations.numbers("like"), found = /** @type {[number, number][]} */ ([]);
    for (let i = 0; i < like.length; i++) {
      const each = likes.get(like[i]);
      if (each && this.scope.weights[i]) found.push([i, each * this.scope.weights[i]]);
    }
    return found.sort((a, b) => b[1] - a[1]);
  }
}
