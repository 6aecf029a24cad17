// Tables as columns: undoes abele/report/store/packet.py (the format is in docs/report_store.md).

import { atOnce } from "./slices.js";

/**
 * @typedef {Float64Array | Float32Array | Int32Array} Numbers
 * @typedef {{count: number, header: any, numbers(name: string): Numbers, words(name: string): Words, has(name: string): boolean, names: string[]}} Table
 */

/** @typedef {{bytes: Uint8Array, starts: Int32Array}} List texts as JSON, and where each begins */

const MANY = 4096; // words that are read one by one before all of them are

/** A column of words: an index into the distinct ones for each row. They are read from their bytes when they are asked for. */
export class Words {
  /** @param {Int32Array} index @param {List} list */
  constructor(index, { bytes, starts }) {
    this.index = index;
    this.#bytes = bytes;
    this.#starts = starts;
  }
  #bytes;
  #starts;
  #asked = 0;
  /** @type {string[] | null} */
  #all = null;

  get distinct() {
    this.#all ??= /** @type {string[]} */ (JSON.parse(text.decode(this.#bytes)));
    return this.#all;
  }
  /** @param {number} row @returns {string} */
  at(row) {
    const word = this.index[row];
    if (this.#all || this.#bytes.length < MANY || ++this.#asked > MANY) return this.distinct[word] ?? "";
    const from = this.#starts[word];
    return from === undefined ? "" : JSON.parse(text.decode(this.#bytes.subarray(from, pastText(this.#bytes, from))));
  }
  /** The alphabetical place of each distinct word: what rows are sorted by. */
  ranks() {
    const { distinct } = this, rank = new Int32Array(distinct.length);
    [...distinct.keys()].sort((a, b) => (distinct[a] < distinct[b] ? -1 : 1)).forEach((word, place) => { rank[word] = place; });
    return rank;
  }
}

const text = new TextDecoder();
const [QUOTE, ESCAPE, OPEN, SHUT, OPEN_OBJECT, SHUT_OBJECT] = [...'"\\[]{}'].map((sign) => sign.charCodeAt(0));

/** Behind the text that begins at a place. @param {Uint8Array} bytes JSON @param {number} at */
function pastText(bytes, at) {
  for (at++; at < bytes.length && bytes[at] !== QUOTE; at++) if (bytes[at] === ESCAPE) at++;
  return at + 1;
}

const MAGIC = "ABELPKT1";
const KINDS = { f64: Float64Array, f32: Float32Array, i32: Int32Array, word: Int32Array, i16: Int16Array, i8: Int8Array };
const CUT = "The data of this page were cut short: write the report again.";

/** @param {ArrayBuffer} buffer @returns {Table} */
export const decode = (buffer) => atOnce(decoding(buffer));

/** @param {ArrayBuffer} buffer @returns {Generator<void, Table, void>} */
export function* decoding(buffer) {
  if (buffer.byteLength < 12 || text.decode(new Uint8Array(buffer, 0, 8)) !== MAGIC) throw new Error("The data of this page are not a table of a report.");
  const length = new DataView(buffer).getUint32(8, true);
  const first = Math.ceil((12 + length) / 8) * 8;
  if (first > buffer.byteLength) throw new Error(CUT);
  const { header, lists } = yield* parted(new Uint8Array(buffer, 12, length));
  /** @type {Map<string, Numbers | Words | (() => Numbers | Words)>} those that are as wide as their type only when they are asked for */
  const columns = new Map();
  for (const { name, type, at, as = type, all, words } of header.columns) {
    const Kind = KINDS[/** @type {"f64" | "f32" | "i32" | "word"} */ (type)], Stored = KINDS[/** @type {keyof typeof KINDS} */ (as)];
    if (all === undefined && first + at + header.count * Stored.BYTES_PER_ELEMENT > buffer.byteLength) throw new Error(CUT);
    columns.set(name, () => {
      const values = all !== undefined ? new Kind(header.count).fill(all) : as === type ? new Kind(buffer, first + at, header.count) : new Kind(new Stored(buffer, first + at, header.count));
      return type === "word" ? new Words(/** @type {Int32Array} */ (values), lists[words]) : values;
    });
  }
  const get = (/** @type {string} */ name) => {
    let column = columns.get(name);
    if (!column) throw new Error(`The report has no column ${name}.`);
    if (typeof column === "function") columns.set(name, (column = column()));
    return column;
  };
  return {
    count: header.count,
    header,
    names: [...columns.keys()],
    has: (name) => columns.has(name),
    numbers: (name) => /** @type {Numbers} */ (get(name)),
    words: (name) => /** @type {Words} */ (get(name)),
  };
}

const SOME = 1 << 18; // bytes between pauses
const COLUMN = 3; // how deep a column's description lies: in an object, in a list, in an object

/** The header, in which `words` of a column is a place in `lists`: of 300,000 operations the words are most of it, and few
 * pages want them all. @param {Uint8Array} bytes @returns {Generator<void, {header: any, lists: List[]}, void>} */
function* parted(bytes) {
  /** @type {List[]} */
  const lists = [];
  let rest = "", from = 0, depth = 0, began = -1, starts = new Int32Array(1024), used = 0, pause = SOME;
  for (let at = 0; at < bytes.length;) {
    const sign = bytes[at];
    if (at > pause) { pause = at + SOME; yield; }
    if (sign === QUOTE) {
      if (depth > COLUMN) {
        if (used === starts.length) { const longer = new Int32Array(2 * used); longer.set(starts); starts = longer; }
        starts[used++] = at - began;
      }
      at = pastText(bytes, at);
      continue;
    }
    if (sign === OPEN || sign === OPEN_OBJECT) {
      if (++depth === COLUMN + 1) [began, used] = [at, 0];
    } else if (sign === SHUT || sign === SHUT_OBJECT) {
      if (depth-- === COLUMN + 1) { // a column has one list: its words
        rest += text.decode(bytes.subarray(from, began)) + lists.length;
        lists.push({ bytes: bytes.subarray(began, at + 1), starts: starts.slice(0, used) });
        from = at + 1;
      }
    }
    at++;
  }
  return { header: JSON.parse(rest + text.decode(bytes.subarray(from))), lists };
}

/** What a saved page says of what it had no room for. @param {string} what */
export const leftOut = (what) => `This saved page was made without ${what}: open the report itself with \`abele view\`.`;

/** A table that a saved page holds whole, or an error that says what is left out. @param {Table} table @param {string} what */
export function whole(table, what) {
  if (table.header.thinned) throw new Error(leftOut(what));
  return table;
}
