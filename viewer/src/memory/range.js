// Ranges of what a chart shows: two places, the second behind the last.

/** A range that is zoomed at `place` (0 to 1 of it), never below `least` or beyond the whole.
 * @param {[number, number]} range @param {number} place @param {number} factor @param {number} count @param {number} least @returns {[number, number]} */
export function zoomed([a, b], place, factor, count, least) {
  const size = Math.min(count, Math.max(Math.min(least, count), Math.round((b - a) / factor)));
  const first = Math.round(Math.max(0, Math.min(count - size, a + place * (b - a) - place * size)));
  return [first, first + size];
}

/** A range moved by a share of itself. @param {[number, number]} range @param {number} share @param {number} count @returns {[number, number]} */
export function moved([a, b], share, count) {
  const by = Math.round(share * (b - a)) || Math.sign(share);
  const first = Math.max(0, Math.min(count - (b - a), a + by));
  return [first, first + b - a];
}
