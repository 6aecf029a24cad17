// What lies on tiles, as a list: sorted, and grouped by kind or by layer.

import { bytes, many } from "../format.js";
import { Grid } from "../grid.js";
import { middleOut, tail } from "./tensors.js";

/**
 * @typedef {{
 *   tensors: import("./tensors.js").Tensors, on: Float64Array, letter: (row: number) => string,
 *   chosen: (row: number) => void, opened: (row: number) => void,
 * }} Listed
 * `on` are the bytes of each tensor on the tile that is looked at.
 * @typedef {{name: string, rows: number, on: number, all: number}} Group
 * @typedef {"none" | "kind" | "layer"} By
 * @typedef {(a: number, b: number) => number} Order
 */

export class TensorGrid {
  /** @param {Listed} listed @param {string} tile what the tile is called */
  constructor(listed, tile) {
    const { tensors, on } = listed;
    this.tensors = tensors;
    this.on = on;
    /** Rows of the grid behind those of the tensors. @type {Group[]} */
    this.groups = [];
    /** The group of each tensor. */
    this.groupOf = new Int32Array(0);
    /** @type {Set<string>} */
    this.folded = new Set();
    /** @type {Int32Array} */
    this.rows = new Int32Array(0);
    /** All tensors in the order of a column, once it was asked for. @type {Map<number, Int32Array>} */
    this.known = new Map();
    const words = (/** @type {import("../packet.js").Words} */ column) => { const rank = column.ranks(); return (/** @type {number} */ a, /** @type {number} */ b) => rank[column.index[a]] - rank[column.index[b]]; };
    const texts = (/** @type {(row: number) => string} */ text) => (/** @type {number} */ a, /** @type {number} */ b) => { const x = text(a), y = text(b); return x < y ? -1 : x > y ? 1 : 0; };
    const numbers = (/** @type {ArrayLike<number>} */ values) => (/** @type {number} */ a, /** @type {number} */ b) => values[a] - values[b];
    const full = (/** @type {number} */ r) => [tensors.name(r), tensors.layer(r), tensors.where(r)].filter(Boolean).join("\n");
    /** @type {{name: string, width: string, words?: boolean, text: (row: number) => string, group?: (group: Group) => string, title?: (row: number) => string, order: Order}[]} */
    const columns = [
      { name: "Tensor", width: "minmax(200px,1.4fr)", words: true, text: (r) => middleOut(tensors.name(r), 30), group: (g) => `${g.name || "no layer"}: ${many(g.rows, "row")}`, title: full, order: texts((r) => tensors.name(r)) },
      { name: "", width: "34px", words: true, text: listed.letter, order: (a, b) => on[b] - on[a] },
      { name: "Kind", width: "132px", words: true, text: (r) => tensors.categories.at(r), order: words(tensors.categories) },
      { name: tile, width: "118px", text: (r) => size(on[r]), group: (g) => size(g.on), order: numbers(on) },
      { name: "All tiles", width: "116px", text: (r) => bytes(tensors.bytes[r]), group: (g) => bytes(g.all), order: numbers(tensors.bytes) },
      { name: "Copies", width: "78px", text: (r) => String(tensors.copies[r]), order: numbers(tensors.copies) },
      { name: "Type", width: "minmax(110px,0.5fr)", words: true, text: (r) => tensors.types.at(r), order: words(tensors.types) },
      { name: "Live", width: "minmax(104px,0.4fr)", words: true, text: (r) => tensors.life(r), order: (a, b) => tensors.first[a] - tensors.first[b] || tensors.last[a] - tensors.last[b] },
      { name: "Layer", width: "minmax(130px,0.8fr)", words: true, text: (r) => tail(tensors.layer(r), 20), title: full, order: texts((r) => tensors.layer(r)) },
      { name: "Line", width: "minmax(160px,0.6fr)", words: true, text: (r) => tensors.line(r), title: full, order: texts((r) => tensors.where(r)) },
    ];
    this.orders = columns.map(({ order }) => order);
    const group = (/** @type {number} */ row) => this.groups[row - tensors.count];
    this.grid = new Grid({
      label: "Tensors", height: 300, sorted: 3, what: "row",
      columns: columns.map((c, i) => ({ name: c.name, width: c.width, words: c.words, order: c.order, indent: i ? undefined : (row) => (this.groups.length && row < tensors.count ? 1 : 0),
        text: (row) => (row < tensors.count ? c.text(row) : c.group?.(group(row)) ?? ""), title: c.title && ((row) => (row < tensors.count ? c.title?.(row) ?? "" : group(row).name)) })),
      fold: (row) => (row < tensors.count ? null : !this.folded.has(group(row).name)),
      above: (row) => (row < tensors.count && this.groups.length ? tensors.count + this.groupOf[row] : -1),
      ordered: () => this.#fill(),
      chosen: (row) => { if (row < tensors.count) listed.chosen(row); },
      toggled: (row) => { if (row < tensors.count) listed.opened(row); else this.#fold(group(row).name); },
    });
    this.node = this.grid.node;
  }

  /** @param {string} name */
  #fold(name) {
    if (!this.folded.delete(name)) this.folded.add(name);
    this.#fill();
  }

  /** @param {Int32Array} rows tensors @param {By} by */
  show(rows, by) {
    this.rows = rows;
    this.groups = by === "none" ? [] : this.#grouped(rows, by);
    this.#fill();
  }

  /** Groups, those with most on the tile first. @param {Int32Array} rows @param {By} by */
  #grouped(rows, by) {
    const { tensors, on } = this, name = by === "kind" ? (/** @type {number} */ r) => tensors.categories.at(r) : (/** @type {number} */ r) => tensors.layer(r);
    /** @type {Map<string, Group>} */
    const found = new Map();
    for (const row of rows) {
      const key = name(row);
      let group = found.get(key);
      if (!group) found.set(key, (group = { name: key, rows: 0, on: 0, all: 0 }));
      group.rows++;
      group.on += on[row];
      group.all += tensors.bytes[row];
    }
    const groups = [...found.values()].sort((a, b) => b.on - a.on || b.all - a.all), place = new Map(groups.map((group, i) => [group.name, i]));
    this.groupOf = new Int32Array(tensors.count);
    for (const row of rows) this.groupOf[row] = place.get(name(row)) ?? 0;
    return groups;
  }

  #fill() {
    const { count } = this.tensors, sorted = this.#sorted();
    if (!this.groups.length) { this.grid.fill(sorted); return; }
    const open = this.groups.map(({ name }) => !this.folded.has(name)), next = new Int32Array(this.groups.length);
    let at = 0;
    this.groups.forEach((group, i) => { next[i] = at + 1; at += 1 + (open[i] ? group.rows : 0); });
    const rows = new Int32Array(at);
    this.groups.forEach((_, i) => { rows[next[i] - 1] = count + i; });
    for (const row of sorted) if (open[this.groupOf[row]]) rows[next[this.groupOf[row]]++] = row;
    this.grid.fill(rows);
  }

  /** The rows in the order of the column that was pressed. Many of them are picked from all, which are sorted once. */
  #sorted() {
    const { rows, tensors: { count } } = this, column = this.grid.by ?? 0, order = this.orders[column], sign = this.grid.down ? -1 : 1;
    if (rows.length * 8 < count) return Int32Array.from(rows).sort((a, b) => sign * order(a, b) || a - b);
    let all = this.known.get(column);
    if (!all) this.known.set(column, (all = Int32Array.from({ length: count }, (_, i) => i).sort((a, b) => order(a, b) || b - a)));
    const wanted = new Uint8Array(count), found = new Int32Array(rows.length);
    for (const row of rows) wanted[row] = 1;
    for (let i = 0, n = 0; i < count; i++) {
      const row = all[this.grid.down ? count - 1 - i : i];
      if (wanted[row]) found[n++] = row;
    }
    return found;
  }
}

/** Bytes, where they are known. @param {number} x */
export const size = (x) => (Number.isNaN(x) ? "–" : bytes(x));
