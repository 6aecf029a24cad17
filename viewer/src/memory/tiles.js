// The bytes of every tile: at its own peak, or at a moment.

import { inOrder, PASSING } from "./categories.js";

/**
 * @typedef {import("../packet.js").Numbers} Numbers
 * @typedef {{title: string, total: Numbers, kinds: {name: string, values: Numbers}[]}} Held
 * Bytes of every tile, IPU after IPU: `kinds` add up to `total`.
 * @typedef {{ipu: number, fullest: number, max: number, mean: number, over: number}} OfIpu
 */

export class Tiles {
  /** @param {any} summary @param {import("../packet.js").Table} table */
  constructor(summary, table) {
    this.memory = summary.tile_memory;
    this.ipus = summary.ipus;
    this.each = summary.ipus ? table.count / summary.ipus : 0;
    this.count = table.count;
    const total = table.numbers("total");
    this.always = inOrder(table.names.filter((name) => !["ipu", "tile", "total"].includes(name))).map((name) => ({ name, values: table.numbers(name) }));
    this.peak = this.#held("each at its own peak", total, [{ name: PASSING, values: this.#rest(total) }]);
  }

  /** @param {Numbers} total */
  #rest(total) {
    const rest = Float64Array.from(total);
    for (const { values } of this.always) for (let i = 0; i < rest.length; i++) rest[i] -= values[i];
    return rest;
  }

  /** @param {string} title @param {Numbers} total @param {{name: string, values: Numbers}[]} passing @returns {Held} */
  #held(title, total, passing) {
    return { title, total, kinds: [...this.always, ...passing].filter(({ values }) => values.some((v) => v > 0)) };
  }

  /** What tiles hold when these bytes are live on them, by kind. @param {string} title @param {Map<string, Float64Array>} passing @returns {Held} */
  during(title, passing) {
    const kinds = inOrder([...passing.keys()]).map((name) => ({ name, values: /** @type {Float64Array} */ (passing.get(name)) })), total = new Float64Array(this.count);
    for (const { values } of [...this.always, ...kinds]) for (let i = 0; i < total.length; i++) total[i] += values[i];
    return this.#held(title, total, kinds);
  }

  /** @param {Held} held @returns {OfIpu[]} */
  byIpu(held) {
    return Array.from({ length: this.ipus }, (_, ipu) => {
      let fullest = ipu * this.each, sum = 0, over = 0;
      for (let i = fullest; i < (ipu + 1) * this.each; i++) {
        const bytes = held.total[i];
        if (bytes > held.total[fullest]) fullest = i;
        if (bytes > this.memory.limit) over++;
        sum += bytes;
      }
      return { ipu, fullest: fullest - ipu * this.each, max: held.total[fullest] ?? 0, mean: this.each ? sum / this.each : 0, over };
    });
  }

  /** Where a tile is. @param {number} place IPU after IPU */
  name(place) {
    const tile = place % this.each, ipu = Math.floor(place / this.each);
    return this.ipus > 1 ? `IPU ${ipu}, tile ${tile}` : `tile ${tile}`;
  }
}

/** For each of `width` pixels the fullest of the tiles that fall on it: no high one is ever lost.
 * @param {Numbers} total @param {number} from @param {number} to @param {number} width */
export function fullestOn(total, from, to, width) {
  const found = new Int32Array(width), count = to - from;
  for (let x = 0; x < width; x++) {
    const first = from + Math.min(count - 1, Math.floor((x * count) / width));
    const stop = Math.max(first + 1, from + Math.floor(((x + 1) * count) / width));
    let most = first;
    for (let i = first + 1; i < stop; i++) if (total[i] > total[most]) most = i;
    found[x] = most;
  }
  return found;
}
