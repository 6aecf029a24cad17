// Numbers and places as text.

/** With so many digits behind the point: made once, since that takes longer than to write a number. @type {Intl.NumberFormat[]} */
const numbers = [0, 1, 2].map((digits) => new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }));

/** @param {number} x @param {number} digits @param {number} least @param {[string, number][]} units */
function scaled(x, digits, least, units) {
  const [unit, factor] = units.find(([, f]) => Math.abs(x) >= f * least) ?? units[units.length - 1];
  const fixed = factor === 1 && unit !== "s" ? 0 : digits;
  return numbers[fixed].format(x / factor) + " " + unit;
}

/** A count, or a number with three digits. @param {number | null | undefined} x */
export const plain = (x) =>
  x === null || x === undefined ? "–" : Math.abs(x) < 100 && x % 1 ? x.toPrecision(3) : numbers[0].format(Math.round(x));
/** A number in at most five signs, for narrow columns. @param {number} x */
export const short = (x) => {
  if (Math.abs(x) < 1000) return plain(x);
  const [unit, factor] = Math.abs(x) < 999_950 ? ["k", 1e3] : Math.abs(x) < 999_950_000 ? ["M", 1e6] : Math.abs(x) < 999_950_000_000 ? ["G", 1e9] : ["T", 1e12];
  const value = x / /** @type {number} */ (factor);
  return (Math.abs(value) < 99.95 ? value.toFixed(Math.abs(value) < 9.995 ? 2 : 1) : value.toFixed(0)) + " " + unit;
};
/** Bytes with three digits, for narrow columns. @param {number} x */
export const shortBytes = (x) => {
  const [unit, factor] = x >= 999.5 * 2 ** 20 ? ["GiB", 2 ** 30] : x >= 999.5 * 1024 ? ["MiB", 2 ** 20] : x >= 1000 ? ["KiB", 1024] : ["B", 1];
  const value = x / /** @type {number} */ (factor);
  return (factor === 1 || value >= 99.95 ? value.toFixed(0) : value.toFixed(value < 9.995 ? 2 : 1)) + " " + unit;
};
/** @param {number} part @param {number} whole */
export const percent = (part, whole) => {
  const share = (100 * part) / whole;
  if (!whole || Number.isNaN(share)) return "–";
  return share > 0 && share < 0.01 ? "< 0.01 %" : share.toFixed(share > 0 && share < 0.1 ? 2 : 1) + " %";
};
/** Bytes, in a unit from four of it on, so that a tile's bytes and its limit are in the same one. @param {number} x */
export const bytes = (x) => scaled(x, 1, 4, [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]]);
/** @param {number} x seconds */
export const seconds = (x) => scaled(x, 2, 1, [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]]);
/** @param {number} x */
export const cycles = (x) => scaled(x, 2, 10, [["Gcycles", 1e9], ["Mcycles", 1e6], ["kcycles", 1e3], ["cycles", 1]]);
/** @param {number} x */
export const flops = (x) => scaled(x, 2, 1, [["TFLOP", 1e12], ["GFLOP", 1e9], ["MFLOP", 1e6], ["FLOP", 1]]);
/** A difference, with its sign. @param {number} x @param {(x: number) => string} show */
export const signed = (x, show) => (x > 0 ? "+" : x < 0 ? "−" : "") + show(Math.abs(x));
/** `1 sample`, `2 samples`. @param {number} n @param {string} word */
export const many = (n, word) => plain(n) + " " + word + (n === 1 ? "" : "s");
/** Samples a second, say. @param {number} x */
export const rate = (x) => short(x) + (Math.abs(x) < 1000 ? " /s" : "/s");
/** Which program, its mode once, and where. @param {{name: string, mode: string, system: string}} program */
export const titled = ({ name, mode, system }) => [name, name.endsWith(`(${mode})`) ? "" : mode, "on", system].filter(Boolean).join(" ");
/** @param {string} file @param {number} line @param {string} layer */
export const where = (file, line, layer) => [file ? `${file}:${line}` : "", layer ? `in ${layer}` : ""].filter(Boolean).join(" ");
