// The tensors as a list: searched, sorted, grouped by kind or by layer.

import { make } from "../dom.js";
import { bytes, many } from "../format.js";
import { Grid } from "../grid.js";
import { middleOut, tail } from "./tensors.js";

/**
 * @typedef {{
 *   tensors: import("./tensors.js").Tensors, on: () => Float64Array, letter: (row: number) => string,
 *   chosen: (row: number) => void, opened: (row: number) => void,
 * }} Listed
 * `on` are the bytes of each tensor on the tile that is looked at.
 */

/** @typedef {"none" | "kind" | "layer"} By */

export class TensorGrid {
  /** @param {Listed} listed @param {string} tile what the tile is called */
  constructor(listed, tile) {
    this.listed = listed;
    /** @type {{name: string, rows: number, on: number, all: number, rank: number}[]} */
    this.groups = [];
    /** The group of a tensor. @type {(row: number) => number} */
    this.groupOf = () => 0;
    /** @type {Set<string>} */
    this.folded = new Set();
    /** @type {Int32Array} */
    this.rows = new Int32Array(0);
    const { tensors } = listed, count = tensors.count, on = listed.on;
    const text = (/** @type {(row: number) => string} */ own, /** @type {(g: any) => string} */ group = () => "") => (/** @type {number} */ row) => (row < count ? own(row) : group(this.groups[row - count]));
    const words = (/** @type {import("../packet.js").Words} */ column) => { const rank = ranks(column.distinct); return (/** @type {number} */ a, /** @type {number} */ b) => rank[column.index[a]] - rank[column.index[b]]; };
    const compare = (/** @type {(row: number) => string} */ name) => (/** @type {number} */ a, /** @type {number} */ b) => { const x = name(a), y = name(b); return x < y ? -1 : x > y ? 1 : 0; };
    const less = (/** @type {(row: number) => number} */ value) => (/** @type {number} */ a, /** @type {number} */ b) => value(a) - value(b);
    /** @type {[string, string, boolean, (row: number) => string, (a: number, b: number) => number][]} */
    const columns = [
      ["", "34px", true, text(listed.letter), (a, b) => on()[b] - on()[a]],
      ["Tensor", "minmax(170px,1.4fr)", true, text((r) => middleOut(tensors.name(r), 30), (g) => `${this.folded.has(g.name) ? "▸" : "▾"} ${g.name || "no layer"}: ${many(g.rows, "row")}`), compare((r) => tensors.name(r))],
      ["Kind", "132px", true, text((r) => tensors.categories.at(r)), words(tensors.categories)],
      [tile, "118px", false, text((r) => bytes(on()[r]), (g) => bytes(g.on)), less((r) => on()[r])],
      ["All tiles", "116px", false, text((r) => bytes(tensors.bytes[r]), (g) => bytes(g.all)), less((r) => tensors.bytes[r])],
      ["Copies", "78px", false, text((r) => String(tensors.copies[r])), less((r) => tensors.copies[r])],
      ["Type", "minmax(110px,0.5fr)", true, text((r) => tensors.types.at(r)), words(tensors.types)],
      ["Live", "104px", true, text((r) => tensors.life(r)), (a, b) => tensors.first[a] - tensors.first[b] || tensors.last[a] - tensors.last[b]],
      ["Layer", "minmax(130px,0.8fr)", true, text((r) => tail(tensors.layer(r), 22)), compare((r) => tensors.layer(r))],
      ["Line", "minmax(160px,0.6fr)", true, text((r) => tensors.line(r)), compare((r) => tensors.where(r))],
    ];
    /** @type {Grid} */
    this.grid = new Grid({
      label: "Tensors", height: 300, sorted: 3,
      columns: columns.map(([name, width, isWords, shown, order]) => ({ name, width, words: isWords, text: shown, title: name === "Tensor" || name === "Layer" || name === "Line" ? (row) => (row < count ? [tensors.name(row), tensors.layer(row), tensors.where(row)].filter(Boolean).join("\n") : this.groups[row - count].name) : undefined, order: (a, b) => this.#grouped(a, b) || order(a, b),
        indent: name === "Tensor" ? (row) => (this.groups.length && row < count ? 1 : 0) : undefined })),
      chosen: (row) => { if (row < count) listed.chosen(row); },
      toggled: (row) => { if (row < count) listed.opened(row); else this.#fold(this.groups[row - count].name); },
    });
    this.node = make("div", null, this.grid.node);
  }

  /** Groups by their bytes, whichever way the list is sorted, each under its heading.
   * @param {number} a @param {number} b @returns {number} */
  #grouped(a, b) {
    if (!this.groups.length) return 0;
    const { count } = this.listed.tensors, sign = this.grid.down ? -1 : 1;
    const [x, y] = [a, b].map((row) => (row < count ? this.groupOf(row) : row - count));
    if (x !== y) return sign * (this.groups[x].rank - this.groups[y].rank);
    return a >= count || b >= count ? sign * (a >= count ? (b >= count ? 0 : -1) : 1) : 0;
  }

  /** @param {string} name */
  #fold(name) {
    if (!this.folded.delete(name)) this.folded.add(name);
    this.#fill();
  }

  /** @param {Int32Array} rows tensors @param {By} by */
  show(rows, by) {
    const { tensors, on } = this.listed;
    this.rows = rows;
    this.groups = [];
    this.groupOf = () => 0;
    if (by !== "none") {
      const name = by === "kind" ? (/** @type {number} */ r) => tensors.categories.at(r) : (/** @type {number} */ r) => tensors.layer(r);
      const place = new Map(), of = new Int32Array(tensors.count);
      for (const row of rows) {
        const key = name(row);
        let g = place.get(key);
        if (g === undefined) { place.set(key, (g = this.groups.length)); this.groups.push({ name: key, rows: 0, on: 0, all: 0, rank: 0 }); }
        of[row] = g;
        this.groups[g].rows++;
        this.groups[g].on += on()[row];
        this.groups[g].all += tensors.bytes[row];
      }
      [...this.groups].sort((a, b) => b.on - a.on || b.all - a.all).forEach((group, rank) => { group.rank = rank; });
      this.groupOf = (row) => of[row];
    }
    this.#fill();
  }

  #fill() {
    const { count } = this.listed.tensors;
    const open = this.folded.size ? this.rows.filter((row) => !this.folded.has(this.groups[this.groupOf(row)]?.name)) : this.rows;
    this.grid.fill(Int32Array.from([...open, ...this.groups.map((_, i) => count + i)]));
  }
}

/** The alphabetical place of each word. @param {string[]} words */
function ranks(words) {
  const rank = new Int32Array(words.length);
  [...words.keys()].sort((a, b) => (words[a] < words[b] ? -1 : 1)).forEach((word, place) => { rank[word] = place; });
  return rank;
}
