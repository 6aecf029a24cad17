// The program as one line of moments: where each lies, what runs in it, and which calls and loops are around it.

/**
 * @typedef {import("./packet.js").Table} Table
 * @typedef {{enter: number, exit: number, level: number, name?: string}} Fold
 * A call or repeat from moment `enter` to `exit`; `level` counts those around it; its `name` is told in brief. Only one turn of a repeat is on the
 * line: the others pass before moment `exit`.
 * @typedef {"folded" | "cycles" | "moments"} AxisName
 * @typedef {{name: AxisName, count: number, edges: Float64Array, unit: (moment: number) => number}} Axis
 * Moment `i` begins at `edges[i]`, which a cycle of it is `unit(i)` long after. `folded`: in cycles, but the turns of a loop that
 * are like its first are shown short. `cycles`: as long as they are. `moments`: each as wide as any other.
 */

const SHORT = 0.015; // of what is drawn, the turns that are not

/** What a moment is made of, in the order in which it runs. */
export const PARTS = /** @type {const} */ (["sync", "exchange", "links", "compute", "host", "overhead"]);

export class Line {
  /** @param {Table} moments @param {Table} operations @param {number} cycles of the whole program @param {Table | null} [folds] where the moments are in brief */
  constructor(moments, operations, cycles, folds = null) {
    this.count = moments.count;
    /** Moments of the program. @type {number} */
    this.whole = moments.header.of ?? this.count;
    this.operations = operations;
    this.operation = folds ? new Int32Array(this.count).fill(-1) : moments.numbers("operation");
    this.start = moments.numbers("start");
    this.ipu = moments.numbers("ipu");
    this.depth = folds ? new Int32Array(this.count) : moments.numbers("depth");
    this.parts = folds ? PARTS.map((name) => moments.numbers(name)) : this.#parts(moments);
    /** In brief, the largest share that a part has of any moment that one stands for. @type {Record<string, import("./packet.js").Numbers> | null} */
    this.most = folds && Object.fromEntries(moments.names.filter((name) => name.startsWith("most.")).map((name) => [name.slice(5), moments.numbers(name)]));
    this.lengths = new Float64Array(this.count);
    /** The parts, as places in `PARTS`, that any moment has. @type {number[]} */
    this.used = [];
    for (const [k, part] of this.parts.entries()) {
      let any = false;
      for (let i = 0; i < this.count; i++) {
        if (!part[i]) continue;
        this.lengths[i] += part[i];
        any = true;
      }
      if (any) this.used.push(k);
    }
    const true_ = this.#edges(cycles);
    /** @type {Record<AxisName, Axis>} */
    this.axes = {
      cycles: { name: "cycles", count: this.count, edges: true_, unit: () => 1 },
      folded: { name: "folded", count: this.count, edges: this.#folded(true_), unit: () => 1 },
      moments: { name: "moments", count: this.count, edges: new Float64Array(this.count + 1).map((_, i) => i), unit: (i) => { const length = this.length(i); return length ? 1 / length : 0; } },
    };
    /** Whether any turns are not drawn. */
    this.turns = this.axes.folded.edges[this.count] < true_[this.count];
    this.folds = folds ? briefFolds(folds) : this.#folds();
    /** @type {Map<number, Int32Array>} */
    this.ofIpu = new Map();
    /** @type {Map<string, number>} */
    this.firsts = new Map();
  }

  /** Cycles of a moment itself. @param {number} i */
  length(i) {
    return this.lengths[i];
  }

  /** Whether any moment has a part. @param {typeof PARTS[number]} name */
  has(name) {
    return this.used.includes(PARTS.indexOf(name));
  }

  /** Cycles by part: of what a moment exchanges the links take what they take of its operation's, and of the host's the overhead. @param {Table} moments */
  #parts(moments) {
    const split = (/** @type {string} */ first, /** @type {string} */ second) => {
      const [one, two] = [first, second].map((name) => this.operations.numbers(name)), both = Float64Array.from(moments.numbers(first)), other = new Float64Array(this.count);
      for (let i = 0; i < this.count; i++) {
        const row = this.operation[i];
        if (!both[i] || row < 0 || !two[row]) continue;
        other[i] = (both[i] * two[row]) / (one[row] + two[row]);
        both[i] -= other[i];
      }
      return [both, other];
    };
    const [near, far] = split("exchange", "links"), [host, overhead] = split("host", "overhead");
    return [moments.numbers("sync"), near, far, moments.numbers("compute"), host, overhead];
  }

  /** Where a moment itself ends. @param {Axis} axis @param {number} i */
  end(axis, i) {
    return axis.edges[i] + axis.unit(i) * this.length(i);
  }

  /** The cycle at a position. @param {Axis} axis @param {number} position */
  cycle(axis, position) {
    const i = at(axis, position), from = this.axes.cycles.edges, inside = position - axis.edges[i], long = axis.unit(i) * this.length(i);
    if (long && inside <= long) return from[i] + inside / axis.unit(i);
    const gap = axis.edges[i + 1] - axis.edges[i] - long;
    return from[i] + this.length(i) + (gap > 0 ? ((inside - long) / gap) * (from[i + 1] - from[i] - this.length(i)) : 0);
  }

  /** @param {number} cycles */
  #edges(cycles) {
    const edges = new Float64Array(this.count + 1);
    let latest = 0;
    for (let i = 0; i < this.count; i++) edges[i] = latest = Math.max(latest, this.start[i]);
    edges[this.count] = Math.max(latest + (this.count ? this.length(this.count - 1) : 0), cycles);
    return edges;
  }

  /** @param {Float64Array} edges in cycles */
  #folded(edges) {
    const folded = new Float64Array(this.count + 1), { lengths } = this;
    let drawn = 0;
    for (let i = 0; i < this.count; i++) drawn += lengths[i];
    for (let i = 0; i < this.count; i++) {
      const whole = edges[i + 1] - edges[i], length = Math.min(whole, lengths[i]);
      folded[i + 1] = folded[i] + length + Math.min(whole - length, SHORT * drawn);
    }
    return folded;
  }

  /** @returns {Fold[]} */
  #folds() {
    const kind = this.operations.words("kind"), nested = kind.distinct.map((word) => word === "call" || word === "repeat");
    /** @type {Fold[]} */
    const folds = [];
    /** @type {Fold[]} */
    const open = [];
    for (let i = 0; i < this.count; i++) {
      const inside = open[open.length - 1];
      if (inside && this.depth[i] <= this.depth[inside.enter]) {
        inside.exit = i;
        open.pop();
        continue; // the end of a call
      }
      const operation = this.operation[i];
      if (operation >= 0 && nested[kind.index[operation]] && i + 1 < this.count && this.depth[i + 1] > this.depth[i]) {
        const fold = { enter: i, exit: this.count - 1, level: open.length };
        folds.push(fold);
        open.push(fold);
      }
    }
    return folds;
  }

  /** The moments at work on an IPU, in order. @param {number} ipu */
  on(ipu) {
    let found = this.ofIpu.get(ipu);
    if (!found) {
      const all = new Int32Array(this.count), { lengths } = this;
      let used = 0;
      for (let i = 0; i < this.count; i++) if (this.ipu[i] === ipu && lengths[i] > 0) all[used++] = i;
      this.ofIpu.set(ipu, (found = all.slice(0, used)));
    }
    return found;
  }

  /** The first moment of the operation with that stable key, or −1. @param {string | null} key */
  first(key) {
    if (key === null) return -1;
    let found = this.firsts.get(key);
    if (found === undefined) {
      const keys = this.operations.words("key"), word = keys.distinct.indexOf(key);
      found = word < 0 ? -1 : this.operation.findIndex((row) => row >= 0 && keys.index[row] === word);
      this.firsts.set(key, found);
    }
    return found;
  }

  /** Whether an operation runs others: a call or a repeat. @param {number} operation */
  runsOthers(operation) {
    return ["call", "repeat"].includes(this.operations.words("kind").at(operation));
  }
}

/** @param {Table} table @returns {Fold[]} */
function briefFolds(table) {
  const [enter, exit, level] = ["enter", "exit", "level"].map((name) => table.numbers(name)), names = table.words("name");
  return Array.from(enter, (from, i) => ({ enter: from, exit: exit[i], level: level[i], get name() { return names.at(i); } })); // few are wide enough for theirs
}

/** The moment at a position: the last that starts by it. @param {Axis} axis @param {number} position */
export function at(axis, position) {
  let low = 0, high = axis.count;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (axis.edges[middle] <= position) low = middle; else high = middle;
  }
  return low;
}

/** The place in `items`, moments in order, of the last that starts by a position; 0 where none does.
 * @param {Axis} axis @param {Int32Array} items @param {number} position */
export function placeAt(axis, items, position) {
  let low = 0, high = items.length;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (axis.edges[items[middle]] <= position) low = middle; else high = middle;
  }
  return low;
}
