// Tables as columns: undoes abele/report/store/packet.py (the format is in docs/report_store.md).

/**
 * @typedef {Float64Array | Float32Array | Int32Array} Numbers
 * @typedef {{count: number, header: any, numbers(name: string): Numbers, words(name: string): Words, has(name: string): boolean, names: string[]}} Table
 */

/** A column of words: an index into the distinct ones for each row. */
export class Words {
  /** @param {Int32Array} index @param {string[]} distinct */
  constructor(index, distinct) {
    this.index = index;
    this.distinct = distinct;
  }
  /** @param {number} row */
  at(row) {
    return this.distinct[this.index[row]] ?? "";
  }
  /** The alphabetical place of each distinct word: what rows are sorted by. */
  ranks() {
    const { distinct } = this, rank = new Int32Array(distinct.length);
    [...distinct.keys()].sort((a, b) => (distinct[a] < distinct[b] ? -1 : 1)).forEach((word, place) => { rank[word] = place; });
    return rank;
  }
}

const MAGIC = "ABELPKT1";
const CUT = "The data of this page were cut short: write the report again.";

/**
 * @param {ArrayBuffer} buffer
 * @returns {Table}
 */
export function decode(buffer) {
  const text = new TextDecoder();
  if (buffer.byteLength < 12 || text.decode(new Uint8Array(buffer, 0, 8)) !== MAGIC) throw new Error("The data of this page are not a table of a report.");
  const length = new DataView(buffer).getUint32(8, true);
  const first = Math.ceil((12 + length) / 8) * 8;
  if (first > buffer.byteLength) throw new Error(CUT);
  const header = JSON.parse(text.decode(new Uint8Array(buffer, 12, length)));
  /** @type {Map<string, Numbers | Words>} */
  const columns = new Map();
  for (const { name, type, at, words } of header.columns) {
    const Kind = type === "f64" ? Float64Array : type === "f32" ? Float32Array : Int32Array;
    if (first + at + header.count * Kind.BYTES_PER_ELEMENT > buffer.byteLength) throw new Error(CUT);
    const values = new Kind(buffer, first + at, header.count);
    columns.set(name, type === "word" ? new Words(/** @type {Int32Array} */ (values), words) : values);
  }
  const get = (/** @type {string} */ name) => {
    const column = columns.get(name);
    if (!column) throw new Error(`The report has no column ${name}.`);
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

/** What a saved page says of what it had no room for. @param {string} what */
export const leftOut = (what) => `This saved page was made without ${what}: open the report itself with \`abele view\`.`;

/** A table that a saved page holds whole, or an error that says what is left out. @param {Table} table @param {string} what */
export function whole(table, what) {
  if (table.header.thinned) throw new Error(leftOut(what));
  return table;
}
