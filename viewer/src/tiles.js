// Numbers of every tile, kept as runs, and the compute sets that name them.

/** @typedef {import("./packet.js").Table} Table */

/** The columns over tiles of a program: each is runs of equal numbers. */
export class TileColumns {
  /** @param {Table} table rows of one column together */
  constructor(table) {
    const column = table.numbers("column");
    this.stop = table.numbers("stop");
    this.value = table.numbers("value");
    /** @type {Map<number, [number, number]>} first run and the one after the last */
    this.place = new Map();
    for (let i = 0, from = 0; i < table.count; i++) {
      if (i + 1 === table.count || column[i + 1] !== column[i]) {
        this.place.set(column[i], [from, i + 1]);
        from = i + 1;
      }
    }
  }
  /** @param {number} id @returns {[number, number]} */
  runs(id) {
    return this.place.get(id) ?? [0, 0];
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

/** The rows of a table by a number in them. @param {import("./packet.js").Numbers} column @returns {Map<number, number[]>} */
export function rowsBy(column) {
  const found = new Map();
  for (let i = 0; i < column.length; i++) {
    const rows = found.get(column[i]);
    if (rows) rows.push(i); else found.set(column[i], [i]);
  }
  return found;
}

/** The rows of `sets` by operation, in the order of their plan. */
export class Sets {
  /** @param {Table} table @param {Table} operations */
  constructor(table, operations) {
    this.table = table;
    this.likes = operations.numbers("like");
    const place = table.numbers("place");
    this.rows = rowsBy(table.numbers("operation"));
    for (const rows of this.rows.values()) rows.sort((a, b) => place[a] - place[b]);
  }
  /** The operation whose sets are also this one's, or −1. @param {number} operation */
  like(operation) {
    return operation < 0 ? -1 : this.likes[operation];
  }
  /** @param {number} operation @returns {number[]} */
  of(operation) {
    return this.rows.get(this.like(operation)) ?? [];
  }
}
