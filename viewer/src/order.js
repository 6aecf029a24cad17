// Rows in the order of a number of each: by its digits, which of many takes a quarter of the time of comparing them.

const DIGIT = 11, PLACES = 1 << DIGIT; // bits that are looked at in one pass

/**
 * Rows by a number of each, those that are equal in the order in which they come; what is not a number comes last, or first
 * with `down`.
 * @param {Int32Array} rows @param {(row: number) => number} value @param {boolean} down the largest first
 */
export function sortedBy(rows, value, down) {
  const n = rows.length, keys = new Float64Array(n), bits = new Uint32Array(keys.buffer);
  for (let i = 0; i < n; i++) keys[i] = value(rows[i]) + 0; // no −0
  // As unsigned integers the bits of numbers are in their order, once those below zero are turned round.
  for (let i = 0; i < n; i++) {
    const high = bits[2 * i + 1], below = high >>> 31 ? 0xffffffff : 0, turned = down ? 0xffffffff : 0;
    bits[2 * i] ^= below ^ turned;
    bits[2 * i + 1] = high ^ (below | 0x80000000) ^ turned;
  }
  let order = new Int32Array(n).map((_, i) => i), next = new Int32Array(n);
  for (let shift = 0; shift < 64; shift += DIGIT) {
    const count = new Int32Array(PLACES);
    for (let i = 0; i < n; i++) count[digit(bits, i, shift)]++;
    if (count.includes(n)) continue; // all are alike in it
    for (let place = 0, at = 0; place < PLACES; place++) [count[place], at] = [at, at + count[place]];
    for (let i = 0; i < n; i++) next[count[digit(bits, order[i], shift)]++] = order[i];
    [order, next] = [next, order];
  }
  return order.map((i) => rows[i]);
}

/** @param {Uint32Array} bits @param {number} i @param {number} shift */
function digit(bits, i, shift) {
  if (shift >= 32) return (bits[2 * i + 1] >>> (shift - 32)) & (PLACES - 1);
  const low = bits[2 * i] >>> shift;
  return (shift + DIGIT > 32 ? low | (bits[2 * i + 1] << (32 - shift)) : low) & (PLACES - 1);
}
