// Numbers of every tile, kept as runs, and the compute sets that name them.

/** @typedef {import("./packet.js").Table} Table */

/** The columns over tiles of a program: each is runs of equal numbers. */
export class TileColumns {
  /** @param {Table} table rows of one column together, by their ascending ids */
  constructor(table) {
    const column = table.numbers("column"), { count } = table;
    this.stop = table.numbers("stop");
    this.value = table.numbers("value");
    /** Where the runs of each column begin; those of the next are behind its last. */
    this.start = new Int32Array(count ? column[count - 1] + 2 : 1);
    for (let i = 0, id = 0; i <= count; i++) {
      for (const next = i < count ? column[i] : this.start.length - 1; id <= next; id++) this.start[id] = i;
    }
  }
  /** @param {number} id @returns {[number, number]} first run and the one after the last */
  runs(id) {
    return id >= 0 && id + 1 < this.start.length ? [this.start[id], this.start[id + 1]] : [0, 0];
  }
  /** @param {number} id @param {number} tile */
  at(id, tile) {
    const [from, to] = this.runs(id);
    let low = from, high = to;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.stop[middle] > tile) high = middle; else low = middle + 1;
    }
    return low < to ? this.value[low] : 0;
  }
  /** Add a column to numbers of every tile. @param {number} id @param {Float64Array} into @param {number} [factor] */
  add(id, into, factor = 1) {
    const [from, to] = this.runs(id);
    for (let i = from, tile = 0; i < to; i++) {
      const end = Math.min(into.length, this.stop[i]), value = factor * this.value[i];
      if (value) for (; tile < end; tile++) into[tile] += value;
      tile = end;
    }
  }
  /** The first tile with the most, how much that is, and the sum over tiles. @param {number} id */
  most(id) {
    const [from, to] = this.runs(id);
    let tile = 0, most = 0, sum = 0;
    for (let i = from, first = 0; i < to; first = this.stop[i], i++) {
      if (this.value[i] > most) { most = this.value[i]; tile = first; }
      sum += this.value[i] * (this.stop[i] - first);
    }
    return { tile, most, sum };
  }
}

const NONE = new Int32Array(0);

/** The rows of a table by a number in them that is never below zero, in their order. */
export class RowsBy {
  /** @param {import("./packet.js").Numbers} column */
  constructor(column) {
    let most = -1;
    for (let i = 0; i < column.length; i++) if (column[i] > most) most = column[i];
    this.start = new Int32Array(most + 2);
    for (let i = 0; i < column.length; i++) this.start[column[i] + 1]++;
    for (let value = 0; value <= most; value++) this.start[value + 1] += this.start[value];
    const next = this.start.slice();
    this.rows = new Int32Array(column.length);
    for (let i = 0; i < column.length; i++) this.rows[next[column[i]]++] = i;
  }
  /** @param {number} value */
  has(value) {
    return value >= 0 && this.start[value + 1] > this.start[value];
  }
  /** @param {number} value */
  of(value) {
    return this.has(value) ? this.rows.subarray(this.start[value], this.start[value + 1]) : NONE;
  }
  /** The numbers that there are, ascending. */
  values() {
    return Array.from({ length: this.start.length - 1 }, (_, value) => value).filter((value) => this.has(value));
  }
}

/** The rows of `sets` by operation, in the order of their plan. */
export class Sets {
  /** @param {Table} table @param {Table} operations */
  constructor(table, operations) {
    this.table = table;
    this.likes = operations.numbers("like");
    this.place = table.numbers("place");
    this.rows = new RowsBy(table.numbers("operation"));
  }
  /** The operation whose sets are also this one's, or −1. @param {number} operation */
  like(operation) {
    return operation < 0 ? -1 : this.likes[operation];
  }
  /** @param {number} operation */
  has(operation) {
    return this.rows.has(this.like(operation));
  }
  /** @param {number} operation @returns {number[]} */
  of(operation) {
    return [...this.rows.of(this.like(operation))].sort((a, b) => this.place[a] - this.place[b]);
  }
}
