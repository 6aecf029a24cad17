// What lies on tiles: tensors, and (without a type) code, stacks, received bytes and temporaries. What they are called, where they come from, how much of them a tile holds and when.

import { where } from "../format.js";
import { TileColumns } from "../tiles.js";

/** @type {WeakMap<import("../packet.js").Table, Tensors>} */
const known = new WeakMap();

export class Tensors {
  /** @param {import("../packet.js").Table} table @param {import("../packet.js").Table} columns @param {import("../packet.js").Table} operations @param {number} moments */
  constructor(table, columns, operations, moments) {
    this.count = table.count;
    this.operations = operations;
    this.moments = moments;
    this.homes = new TileColumns(columns);
    /** Is it known what each takes of each tile? A saved page may have been made without. */
    this.sized = !columns.header.thinned;
    this.names = table.words("name");
    this.sources = table.words("source");
    this.types = table.words("type");
    this.categories = table.words("category");
    this.bytes = table.numbers("bytes");
    this.most = table.numbers("tile_bytes");
    this.copies = table.numbers("copies");
    this.first = table.numbers("first");
    this.last = table.numbers("last");
    this.always = table.numbers("always");
    this.ipu = table.numbers("ipu");
    this.operation = table.numbers("operation");
    this.home = table.numbers("home");
  }

  /** @param {import("../main.js").Context} context */
  static async load(context) {
    const [table, columns, operations, moments] = await Promise.all(["tensors", "columns", "operations", "moments"].map((name) => context.table(name)));
    let tensors = known.get(table);
    if (!tensors) known.set(table, (tensors = new Tensors(table, columns, operations, moments.count)));
    return tensors;
  }

  /** Those for which something is so. @param {(row: number) => boolean} wanted */
  rows(wanted) {
    const found = new Int32Array(this.count);
    let used = 0;
    for (let row = 0; row < this.count; row++) if (wanted(row)) found[used++] = row;
    return found.slice(0, used);
  }

  /** What a person calls it: the name in the program, else what made it. @param {number} row */
  name(row) {
    return this.sources.at(row) || [this.operationName(row), this.names.at(row)].filter(Boolean).join(" ") || "without a name";
  }
  /** @param {number} row */
  operationName(row) {
    return this.operation[row] < 0 ? "" : this.operations.words("name").at(this.operation[row]);
  }
  /** Module path of what makes it; of weights and what the optimiser keeps for them, that in their name. @param {number} row */
  layer(row) {
    if (this.operation[row] >= 0) return this.operations.words("layer").at(this.operation[row]);
    const name = this.sources.at(row).replace(/^optimiser\.[^.]+\./, "");
    return name.slice(0, Math.max(0, name.lastIndexOf(".")));
  }
  /** File and line of the user's code. @param {number} row */
  where(row) {
    const o = this.operation[row];
    return o < 0 ? "" : where(this.operations.words("file").at(o), this.operations.numbers("line")[o], "");
  }
  /** File without its folders, and line. @param {number} row */
  line(row) {
    return this.where(row).replace(/^.*[/\\]/, "");
  }
  /** The stable key of what made it, or null. @param {number} row */
  key(row) {
    return this.operation[row] < 0 ? null : this.operations.words("key").at(this.operation[row]);
  }
  /** When it is live, as text. @param {number} row */
  life(row) {
    return this.always[row] ? "always" : `${this.first[row]} – ${this.last[row]}`;
  }
  /** @param {number} row @param {number} from @param {number} [to] moments */
  alive(row, from, to = from) {
    return this.always[row] === 1 || !this.moments || (this.first[row] <= to && this.last[row] >= from);
  }
  /** Is it kept for half of the program or more without being always there? @param {number} row */
  long(row) {
    return !this.always[row] && 2 * (this.last[row] - this.first[row] + 1) >= this.moments;
  }

  /** Bytes of every tensor on a tile, all copies; NaN where that is not known.
   * @param {number} ipu @param {number} tile @param {import("./placed.js").Placed} [placed] of that IPU, to be read where there is no more */
  on(ipu, tile, placed) {
    if (!this.sized) return placed?.tile === tile ? placed.sizes(this.count) : new Float64Array(this.count).fill(NaN);
    const found = new Float64Array(this.count), known = new Float64Array(this.homes.start.length).fill(NaN);
    for (let row = 0; row < this.count; row++) {
      if (this.ipu[row] !== ipu) continue;
      const column = this.home[row];
      if (Number.isNaN(known[column])) known[column] = this.homes.at(column, tile);
      found[row] = (known[column] ?? 0) * this.copies[row];
    }
    return found;
  }

  /** Bytes on every tile, by kind, of what is live at a moment and not always. @param {number} moment @param {number} ipus @param {number} tiles */
  passingAt(moment, ipus, tiles) {
    /** @type {Map<string, Float64Array>} */
    const found = new Map();
    for (let row = 0; row < this.count; row++) {
      if (this.always[row] || !this.alive(row, moment)) continue;
      const kind = this.categories.at(row);
      let bytes = found.get(kind);
      if (!bytes) found.set(kind, (bytes = new Float64Array(ipus * tiles)));
      this.homes.add(this.home[row], bytes.subarray(this.ipu[row] * tiles, (this.ipu[row] + 1) * tiles), this.copies[row]);
    }
    return found;
  }

  /** Which rows have the text in a name, a type, a layer or a file. Each distinct word is looked at once, when a row has it.
   * @param {string} text @returns {(row: number) => boolean} */
  matching(text) {
    const wanted = text.trim().toLowerCase();
    if (!wanted) return () => true;
    const hits = (/** @type {import("../packet.js").Words} */ words) => {
      const known = new Uint8Array(words.distinct.length); // 0: not looked at, 1: no, 2: yes
      return (/** @type {number} */ row) => {
        const word = words.index[row];
        if (!known[word]) known[word] = words.distinct[word].toLowerCase().includes(wanted) ? 2 : 1;
        return known[word] === 2;
      };
    };
    const own = [this.sources, this.names, this.types, this.categories].map(hits);
    const theirs = ["name", "layer", "file"].map((column) => hits(this.operations.words(column)));
    return (row) => own.some((hit) => hit(row)) || (this.operation[row] >= 0 && theirs.some((hit) => hit(this.operation[row])));
  }
}

/** A long text without its middle: of names with dots the end says most. @param {string} text @param {number} most */
export const middleOut = (text, most) => (text.length <= most ? text : text.slice(0, Math.floor(most / 3)) + "…" + text.slice(text.length - Math.ceil((2 * most) / 3) + 1));
/** The end of a long text. @param {string} text @param {number} most */
export const tail = (text, most) => (text.length <= most ? text : "…" + text.slice(1 - most));
