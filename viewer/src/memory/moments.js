// The program as a line of moments, by their number or by their cycles.

/** @typedef {"moments" | "cycles"} Axis */

export class MomentLine {
  /** @param {import("../packet.js").Table | null} moments null: only their number is known @param {number} count */
  constructor(moments, count) {
    this.count = count;
    this.operation = moments?.numbers("operation") ?? new Int32Array(count).fill(-1);
    this.start = moments?.numbers("start") ?? new Float64Array(count);
    // Their own cycles, one after another: a loop is drawn once, so `start` leaps where its other turns pass.
    this.edges = new Float64Array(this.count + 1);
    if (!moments) return;
    const [sync, exchange, compute, host] = ["sync", "exchange", "compute", "host"].map((part) => moments.numbers(part));
    for (let i = 0; i < this.count; i++) this.edges[i + 1] = this.edges[i] + sync[i] + exchange[i] + compute[i] + host[i];
  }

  /** Cycles of some moments, each loop once. @param {number} from @param {number} stop */
  cycles(from, stop) {
    return this.edges[stop] - this.edges[from];
  }

  /** Where a moment begins, as a share of a range of moments. @param {number} moment @param {[number, number]} range @param {Axis} axis */
  share(moment, [a, b], axis) {
    if (axis === "moments") return (moment - a) / (b - a);
    const cycles = this.cycles(a, b);
    return cycles > 0 ? (this.edges[moment] - this.edges[a]) / cycles : (moment - a) / (b - a);
  }

  /** The moment at a share of a range. @param {number} share @param {[number, number]} range @param {Axis} axis */
  at(share, [a, b], axis) {
    if (axis === "moments") return Math.max(a, Math.min(b - 1, a + Math.floor(share * (b - a))));
    const cycle = this.edges[a] + share * this.cycles(a, b);
    let low = a, high = b - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.edges[middle] <= cycle) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** The moments on a pixel: the first, and the one after the last. @param {number} x @param {number} width @param {[number, number]} range @param {Axis} axis @returns {[number, number]} */
  on(x, width, range, axis) {
    const first = this.at(x / width, range, axis), next = this.at((x + 1) / width, range, axis);
    return [first, Math.max(first + 1, x + 1 >= width ? range[1] : next)];
  }
}
