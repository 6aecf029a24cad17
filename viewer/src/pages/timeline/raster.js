// Tiles × time of one IPU as pixels: what each tile works, exchanges and waits. Pixels that a move keeps are kept, and
// nothing is allocated for a cell.

import { colour } from "../../chart.js";
import { PARTS, placeAt } from "../../moments.js";

/**
 * @typedef {import("../../moments.js").Axis} Axis
 * @typedef {"most" | "mean" | "least"} How of the moments and tiles on a pixel, what is drawn
 * @typedef {{axis: Axis, from: number, to: number, width: number, height: number, ipu: number, tiles: [number, number], how: How}} Wanted
 * `width` and `height` in pixels of the screen; `tiles` the first in sight and the one after the last.
 * @typedef {{level: number, table: import("../../packet.js").Table}} Stored
 * `level` 0: in brief, a row of tiles for each moment of the line in the steps that its header tells.
 * @typedef {{kind: string, from: number, to: number, work: Uint8Array | null}} Stretch
 * A part of a moment, from and to in shares of it; `work`: how far into it each row of pixels goes, of 255.
 */

const SHADES = 64;
/** Parts of a moment in which all tiles do the same, and `exchange` of what has no sets to say more of. */
const WHOLE = /** @type {const} */ (["sync", "links", "host", "overhead", "exchange"]);
const KEPT = 96 * 2 ** 20; // bytes of shares that are kept
const WIDE = 3; // pixels: a moment of so many shows its parts
const PART = WHOLE.map((name) => PARTS.indexOf(name));
/** More moments than this in sight are drawn from the stored bins. */
export const MOST = 65_536;

export class Raster {
  /**
   * @param {import("../../moments.js").Line} line @param {import("../../tiles.js").Sets} sets
   * @param {import("../../tiles.js").TileColumns} columns @param {number} tiles of an IPU
   */
  constructor(line, sets, columns, tiles) {
    this.line = line;
    this.sets = sets;
    this.columns = columns;
    this.count = tiles;
    this.scratch = new Float64Array(tiles);
    /** @type {Map<number, {length: number, rows: Uint8Array}>} work and exchange of each row, of 255, by operation */
    this.shares = new Map();
    /** @type {Map<number, Stretch[]>} by operation */
    this.stretches = new Map();
    /** @type {Wanted | null} */
    this.rows = null; // that `shares` and `stretches` are of
    /** @type {ImageData | null} */
    this.image = null;
    this.pixels = new Uint32Array(0);
    this.drawn = "";
    this.origin = 0; // position of the pixel column that `shift` counts from
    this.shift = 0;
    this.shades = new Uint32Array(SHADES * SHADES); // of work and exchange, mixed as they share the time
    this.larger = new Uint32Array(SHADES * SHADES); // of the larger of them
    /** @type {Record<string, Uint32Array>} shades of each part */
    this.ramps = {};
    this.whole = new Float64Array(WHOLE.length);
    this.work = new Float32Array(0);
    this.exchange = new Float32Array(0);
    /** @type {{key: string, firsts: Int32Array, lasts: Int32Array} | null} */
    this.rowBins = null;
  }

  /** The moments in sight, of that IPU: places among its own. @param {{axis: Axis, from: number, to: number, ipu: number}} wanted @returns {[number, number]} */
  inSight({ axis, from, to, ipu }) {
    const items = this.line.on(ipu);
    const first = placeAt(axis, items, from);
    return [first, items.length && axis.edges[items[0]] < to ? placeAt(axis, items, to) + 1 : first];
  }

  /** The image, brought up to what is wanted. @param {Wanted} wanted @param {Stored | null} stored bins to be drawn from
   * @returns {ImageData} */
  paint(wanted, stored) {
    const { axis, from, to, width, height, ipu, tiles, how } = wanted;
    if (!this.ramps.sync) this.#mix();
    if (!this.rows || this.rows.height !== height || this.rows.how !== how || this.rows.tiles[0] !== tiles[0] || this.rows.tiles[1] !== tiles[1]) {
      this.shares.clear();
      this.stretches.clear();
      this.rows = wanted;
      this.drawn = "";
    }
    if (!this.image || this.image.width !== width || this.image.height !== height) {
      this.image = new ImageData(width, height);
      this.pixels = new Uint32Array(this.image.data.buffer);
      this.work = new Float32Array(height);
      this.exchange = new Float32Array(height);
      this.drawn = "";
    }
    const step = (to - from) / width; // of the axis, a pixel
    const key = [ipu, axis.name, step, stored ? stored.level : 0].join();
    const moved = Math.round((from - this.origin) / step) - this.shift;
    if (key === this.drawn && Math.abs(moved) < width) {
      if (!moved) return this.image;
      for (let y = 0, row = 0; y < height; y++, row += width) {
        if (moved > 0) this.pixels.copyWithin(row, row + moved, row + width);
        else this.pixels.copyWithin(row - moved, row, row + width + moved);
      }
      this.shift += moved;
      this.#columns(wanted, stored, step, moved > 0 ? width - moved : 0, moved > 0 ? width : -moved);
    } else {
      this.origin = from;
      this.shift = 0;
      this.drawn = key;
      this.#columns(wanted, stored, step, 0, width);
    }
    return this.image;
  }

  /** @param {Wanted} wanted @param {Stored | null} stored @param {number} step @param {number} x0 @param {number} x1 */
  #columns(wanted, stored, step, x0, x1) {
    const { axis, height, width, ipu, how } = wanted, { work, exchange, whole, line } = this, { edges } = axis;
    const items = line.on(ipu), group = stored ? 16 ** stored.level : 1, groups = Math.ceil(items.length / group);
    const least = how === "least", mean = how === "mean";
    const ends = (/** @type {number} */ j) => { const last = items[Math.min(items.length, (j + 1) * group) - 1]; return edges[last] + axis.unit(last) * line.lengths[last]; };
    let k = Math.floor(placeAt(axis, items, this.origin + (this.shift + x0) * step) / group), alone = -1; // the bin that all of the column before is in
    for (let x = x0; x < x1; x++) {
      const a = this.origin + (this.shift + x) * step, b = a + step;
      while (k + 1 < groups && edges[items[(k + 1) * group]] <= a) k++;
      if (!stored && groups) {
        const i = items[k], long = axis.unit(i) * line.length(i);
        if (long >= WIDE * step && edges[i] <= a && edges[i] + long >= b) {
          this.#inside(i, ((a + b) / 2 - edges[i]) / long, x, width, height);
          continue;
        }
      }
      const near = stored && groups ? items[placeAt(axis, items, b)] : -1, away = near >= 0 && line.end(axis, near) <= a; // between moments of a bin, while others are at work
      if (stored && groups && !away && edges[items[k * group]] <= a && ends(k) >= b) {
        if (alone === k) { // as the column before
          for (let r = 0, at = x; r < height; r++, at += width) this.pixels[at] = this.pixels[at - 1];
          continue;
        }
        alone = k;
      } else alone = -1;
      work.fill(least ? 255 : 0);
      exchange.fill(least ? 255 : 0);
      whole.fill(least ? 255 : 0);
      let covered = 0;
      for (let j = k; !away && j < groups; j++) {
        const first = items[j * group], start = edges[first], end = ends(j);
        if (start >= b) break;
        if (end <= a || end <= start) continue;
        const part = (Math.min(b, end) - Math.max(a, start)) / step;
        covered += part;
        this.#addWhole(items, j * group, Math.min(items.length, (j + 1) * group), part, how);
        if (stored) {
          this.#addBin(wanted, stored, j, part);
          continue;
        }
        const of = this.#share(line.operation[first], line.length(first), height);
        if (mean) for (let r = 0; r < height; r++) { work[r] += part * of[r]; exchange[r] += part * of[height + r]; }
        else if (least) for (let r = 0; r < height; r++) { if (of[r] < work[r]) work[r] = of[r]; if (of[height + r] < exchange[r]) exchange[r] = of[height + r]; }
        else for (let r = 0; r < height; r++) { if (of[r] > work[r]) work[r] = of[r]; if (of[height + r] > exchange[r]) exchange[r] = of[height + r]; }
      }
      if (least && covered < 0.999) { work.fill(0); exchange.fill(0); whole.fill(0); }
      // The most of both says nothing of how they share the time: then the larger is drawn.
      const shades = mean ? this.shades : this.larger, most = whole.reduce((best, value, k) => (value > whole[best] ? k : best), 0), level = whole[most], all = this.ramps[WHOLE[most]][level >> 2];
      for (let r = 0, at = x; r < height; r++, at += width) this.pixels[at] = level > work[r] && level > exchange[r] ? all : shades[((work[r] >> 2) * SHADES) | (exchange[r] >> 2)];
    }
  }

  /** What all tiles do in moments, of 255. @param {Int32Array} items @param {number} from @param {number} to @param {number} share of the pixel @param {How} how */
  #addWhole(items, from, to, share, how) {
    const { line, whole, sets } = this;
    let length = 0;
    for (let j = from; how === "mean" && j < to; j++) length += line.lengths[items[j]];
    if (line.most) {
      for (let k = 0; k < WHOLE.length; k++) {
        const most = line.most[WHOLE[k]];
        for (let j = from; j < to; j++) whole[k] = Math.max(whole[k], 255 * most[items[j]]);
      }
      return;
    }
    for (let j = from; j < to; j++) {
      const i = items[j], long = line.lengths[i];
      if (!long) continue;
      for (let k = 0; k < WHOLE.length; k++) {
        const cycles = WHOLE[k] !== "exchange" || !sets.has(line.operation[i]) ? line.parts[PART[k]][i] : 0;
        if (how === "mean") whole[k] += (share * 255 * cycles) / length;
        else if (how === "least") whole[k] = Math.min(whole[k], (255 * cycles) / long);
        else whole[k] = Math.max(whole[k], (255 * cycles) / long);
      }
    }
  }

  /** A column within one moment. @param {number} moment @param {number} share of it @param {number} x @param {number} width @param {number} height */
  #inside(moment, share, x, width, height) {
    const stretches = this.#parts(moment, height);
    const stretch = stretches.find((s) => share < s.to) ?? stretches[stretches.length - 1];
    const { pixels, ramps } = this, idle = ramps.compute[0];
    if (!stretch?.work) {
      const hue = stretch ? ramps[stretch.kind][SHADES - 1] : idle;
      for (let r = 0, at = x; r < height; r++, at += width) pixels[at] = hue;
      return;
    }
    const busy = ramps[stretch.kind][SHADES - 1], into = (255 * (share - stretch.from)) / (stretch.to - stretch.from);
    for (let r = 0, at = x; r < height; r++, at += width) pixels[at] = stretch.work[r] > into ? busy : idle;
  }

  /** Add a stored bin. @param {Wanted} wanted @param {Stored} stored @param {number} bin @param {number} part of the pixel */
  #addBin({ height, how, tiles, ipu }, { level, table }, bin, part) {
    const { work, exchange, line } = this, { tile_bins: across, wide = 4 ** (level - 1), shades = 1 } = table.header;
    const kind = level ? "." + { mean: "sum", most: "max", least: "min" }[how] : "";
    const w = table.numbers("work" + kind), e = table.numbers("exchange" + kind);
    let length = 0;
    if (how === "mean") {
      const items = line.on(ipu), group = 16 ** level;
      for (let j = bin * group; j < Math.min(items.length, (bin + 1) * group); j++) length += line.length(items[j]);
    }
    const { firsts, lasts } = this.#rowBins(height, tiles, wide);
    for (let r = 0; r < height; r++) {
      let atWork = how === "least" ? 255 : 0, atExchange = atWork;
      for (let t = firsts[r], last = lasts[r]; t <= last; t++) {
        const at = bin * across + t;
        if (how === "least") { atWork = Math.min(atWork, 255 * w[at]); atExchange = Math.min(atExchange, 255 * e[at]); continue; }
        const scale = how === "most" ? 255 / shades : 255 / Math.max(1, length * (Math.min(this.count, (t + 1) * wide) - t * wide));
        atWork = Math.max(atWork, scale * w[at]);
        atExchange = Math.max(atExchange, scale * e[at]);
      }
      if (how === "mean") { work[r] += part * atWork; exchange[r] += part * atExchange; }
      else if (how === "least") { work[r] = Math.min(work[r], atWork); exchange[r] = Math.min(exchange[r], atExchange); }
      else { work[r] = Math.max(work[r], atWork); exchange[r] = Math.max(exchange[r], atExchange); }
    }
  }

  /** The first and the last bin of tiles on each row of pixels, found once for many bins of moments. @param {number} height @param {[number, number]} tiles @param {number} wide */
  #rowBins(height, tiles, wide) {
    const key = [height, tiles, wide].join();
    if (this.rowBins?.key !== key) {
      const firsts = new Int32Array(height), lasts = new Int32Array(height);
      for (let r = 0; r < height; r++) {
        const [first, after] = rowTiles(r, height, tiles);
        firsts[r] = Math.floor(first / wide);
        lasts[r] = Math.ceil(after / wide) - 1;
      }
      this.rowBins = { key, firsts, lasts };
    }
    return this.rowBins;
  }

  /** Work and exchange of an operation's moment by row, of 255. @param {number} operation @param {number} length @param {number} height */
  #share(operation, length, height) {
    const like = this.sets.like(operation);
    let found = this.shares.get(like);
    if (found && found.length !== length) found = this.shares.get(~operation); // one that does not run alone
    if (!found || found.length !== length) {
      if (this.shares.size * 2 * height > KEPT) this.shares.clear();
      found = { length, rows: new Uint8Array(2 * height) };
      this.tileCycles(operation, "work");
      this.#toRows(length, found.rows, 0);
      this.tileCycles(operation, "exchange");
      this.#toRows(length, found.rows, height);
      this.shares.set(this.shares.has(like) ? ~operation : like, found);
    }
    return found.rows;
  }

  /** Cycles in which each tile works, or exchanges, in an operation: written to `scratch`.
   * @param {number} operation @param {"work" | "exchange"} what */
  tileCycles(operation, what) {
    const { table } = this.sets, { scratch, columns } = this;
    scratch.fill(0);
    for (const row of this.sets.of(operation)) {
      if (what === "work") columns.add(table.numbers("work")[row], scratch);
      else {
        const column = table.numbers("received")[row], most = columns.most(column).most;
        if (most) columns.add(column, scratch, table.numbers("exchange")[row] / most);
      }
    }
    return scratch;
  }

  /** The scratch as shares of `whole` for each row of pixels, of 255. @param {number} whole @param {Uint8Array} into @param {number} at */
  #toRows(whole, into, at) {
    const { height, tiles, how } = /** @type {Wanted} */ (this.rows), { scratch } = this;
    const scale = whole ? 255 / whole : 0, each = (tiles[1] - tiles[0]) / height;
    for (let r = 0; r < height; r++) {
      const from = tiles[0] + Math.floor(r * each), to = Math.max(from + 1, tiles[0] + Math.floor((r + 1) * each));
      let value = scratch[from];
      if (how === "mean") { for (let t = from + 1; t < to; t++) value += scratch[t]; value /= to - from; }
      else if (how === "most") { for (let t = from + 1; t < to; t++) if (scratch[t] > value) value = scratch[t]; }
      else for (let t = from + 1; t < to; t++) if (scratch[t] < value) value = scratch[t];
      into[at + r] = Math.min(255, value && Math.max(1, value * scale));
    }
  }

  /** The parts of a moment, set after set. @param {number} moment @param {number} height @returns {Stretch[]} */
  #parts(moment, height) {
    const { line, sets } = this, operation = line.operation[moment];
    const known = this.stretches.get(operation);
    if (known) return known;
    /** @type {Stretch[]} */
    const found = [];
    const rows = sets.of(operation), { table } = sets, whole = line.length(moment);
    const left = line.parts.map((column) => column[moment]);
    const total = (/** @type {string} */ name) => rows.reduce((sum, row) => sum + table.numbers(name)[row], 0);
    // What the moment is charged is shared out as its sets are; what they do not account for comes at the end.
    const of = [total("sync"), total("exchange"), total("links"), total("compute")];
    const scale = of.map((sum, part) => (sum ? Math.min(1, left[part] / sum) : 0));
    let now = 0;
    const push = (/** @type {number} */ part, /** @type {number} */ cycles, /** @type {Uint8Array | null} */ work) => {
      if (cycles <= 1e-6 * whole) return;
      left[part] -= cycles;
      found.push({ kind: PARTS[part], from: now / whole, to: (now + cycles) / whole, work });
      now += cycles;
    };
    for (const row of rows) {
      const compute = table.numbers("compute")[row];
      push(0, scale[0] * table.numbers("sync")[row], null);
      push(1, scale[1] * table.numbers("exchange")[row], this.#column(table.numbers("received")[row], 0, height));
      push(2, scale[2] * table.numbers("links")[row], null);
      push(3, scale[3] * compute, this.#column(table.numbers("work")[row], compute, height));
    }
    for (const part of left.keys()) push(part, left[part], null);
    if (this.stretches.size > 4096) this.stretches.clear();
    this.stretches.set(operation, found);
    return found;
  }

  /** A tile column as shares by row. @param {number} column @param {number} whole what all of it is; 0: its largest @param {number} height */
  #column(column, whole, height) {
    const into = new Uint8Array(height);
    this.scratch.fill(0);
    this.columns.add(column, this.scratch);
    this.#toRows(whole || this.columns.most(column).most, into, 0);
    return into;
  }

  /** Colours of every share of work and of exchange. */
  #mix() {
    const hue = (/** @type {string} */ name) => { const text = colour(name); return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16)); };
    const [idle, compute, exchange] = [hue("idle"), hue("compute"), hue("exchange")];
    const packed = (/** @type {number[]} */ [r, g, b]) => ((255 << 24) | (Math.round(b) << 16) | (Math.round(g) << 8) | Math.round(r)) >>> 0;
    for (let w = 0; w < SHADES; w++) {
      for (let e = 0; e < SHADES; e++) {
        const sum = Math.max(w + e, SHADES - 1);
        this.shades[w * SHADES + e] = packed(idle.map((base, i) => base + ((compute[i] - base) * w + (exchange[i] - base) * e) / sum));
        this.larger[w * SHADES + e] = packed(idle.map((base, i) => base + (w >= e ? (compute[i] - base) * w : (exchange[i] - base) * e) / (SHADES - 1)));
      }
    }
    for (const name of PARTS) {
      const most = hue(name);
      this.ramps[name] = Uint32Array.from({ length: SHADES }, (_, level) => packed(idle.map((base, i) => base + ((most[i] - base) * level) / (SHADES - 1))));
    }
  }
}

/** The tiles on a row of pixels: first, and after the last. @param {number} row @param {number} height @param {[number, number]} tiles @returns {[number, number]} */
export function rowTiles(row, height, [first, after]) {
  const from = first + Math.floor((row * (after - first)) / height);
  return [from, Math.max(from + 1, first + Math.floor(((row + 1) * (after - first)) / height))];
}
