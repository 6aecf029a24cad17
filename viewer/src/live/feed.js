// What a run says of itself, gathered from the server's event stream: it resumes where it was cut off, and keeps a
// bounded number of points however long the run is.

/**
 * @typedef {{ipu: number, stages: number[], compute: number, exchange: number, links: number, sync: number, host: number}} Stage shares of the modelled time
 * @typedef {{
 *   program: number, name: string, system: string, samples: number, train: boolean, seconds: number, cycles: number, ipus: number, replicas: number,
 *   host_in: number, host_out: number, memory: {max: number, limit: number, fits: boolean}, stages: Stage[],
 * }} Figures of one run, modelled (abele/charge/figures.py)
 * @typedef {{text: string, why: string, gain: number | null}} Advice
 * @typedef {{first: number, count: number, wall: number, gap: number, samples: number, losses: number, sum: number, least: number, most: number, bad: number}} Point
 * Several runs as one: seconds of them all, and the sum and the extremes of the losses that are numbers.
 * @typedef {{t: number, level: string, text: string}} Message
 * @typedef {"waiting" | "running" | "ended" | "failed" | "interrupted" | "gone"} Status
 */

const POINTS = 20_000; // of a program; more are put together, two by two
const MESSAGES = 500;
const AGAIN = 2000; // milliseconds before a stream that was refused is asked for again

/** One program of the run. */
export class Program {
  /** @param {Figures} figures */
  constructor(figures) {
    this.figures = figures;
    /** @type {Point[]} */
    this.points = [];
    /** @type {Advice[]} */
    this.advice = [];
    this.runs = this.samples = this.wall = this.gap = this.bad = 0;
  }

  /** @param {any} row an event `steps`; one that was folded meanwhile takes the place of its parts */
  take(row) {
    while (this.points.length && this.points[this.points.length - 1].first >= row.first) this.#add(/** @type {Point} */ (this.points.pop()), -1);
    const point = { first: row.first, count: row.count, wall: row.wall, gap: row.gap, samples: row.samples, losses: row.losses ?? 0, sum: row.loss_sum ?? 0,
      least: row.loss_min ?? Infinity, most: row.loss_max ?? -Infinity, bad: row.loss_bad ?? 0 };
    this.#add(point, 1);
    this.points.push(point);
    if (this.points.length > POINTS) this.#fold();
  }

  /** @param {Point} point @param {number} sign */
  #add(point, sign) {
    this.runs = sign > 0 ? point.first + point.count : point.first;
    this.samples += sign * point.samples;
    this.wall += sign * point.wall;
    this.gap += sign * point.gap;
    this.bad += sign * point.bad;
  }

  #fold() {
    const kept = [];
    for (let i = 0; i + 1 < this.points.length; i += 2) {
      const a = this.points[i], b = this.points[i + 1];
      kept.push({ first: a.first, count: a.count + b.count, wall: a.wall + b.wall, gap: a.gap + b.gap, samples: a.samples + b.samples, losses: a.losses + b.losses,
        sum: a.sum + b.sum, least: Math.min(a.least, b.least), most: Math.max(a.most, b.most), bad: a.bad + b.bad });
    }
    if (this.points.length % 2) kept.push(this.points[this.points.length - 1]);
    this.points = kept;
  }

  /** Samples a second by this computer's clock, over about the last `seconds` of it. */
  rate(seconds = 2) {
    let samples = 0, time = 0;
    for (let i = this.points.length - 1; i >= 0 && time < seconds; i--) { samples += this.points[i].samples; time += this.points[i].wall + this.points[i].gap; }
    return time ? samples / time : 0;
  }

  /** The newest loss that is a number, or null where there is none. */
  get loss() {
    const last = this.points.findLast((point) => point.losses);
    return last ? last.sum / last.losses : null;
  }
}

export class Feed {
  /** @type {Map<number, Program>} */
  programs = new Map();
  /** @type {Message[]} */
  messages = [];
  /** @type {Status} */
  status = "waiting";
  error = "";
  command = "";
  reported = false;
  /** Seconds since the run began. */
  t = 0;
  /** Messages so far. */
  said = 0;

  /** @param {(id: string) => EventSource} open the stream after the event of that id */
  constructor(open) {
    this.open = open;
    this.id = "";
    this.connected = false;
    /** @type {Set<() => void>} */
    this.listeners = new Set();
    this.#connect();
  }

  #forget() {
    this.programs.clear();
    this.messages = [];
    this.status = "waiting";
    this.error = this.command = "";
    this.reported = false;
    this.t = this.said = 0;
  }

  #connect() {
    const stream = this.open(this.id);
    stream.onopen = () => { this.connected = true; this.#tell(); };
    stream.addEventListener("anew", () => this.#forget());
    stream.onmessage = (event) => {
      this.id = event.lastEventId;
      for (const row of JSON.parse(event.data)) this.#take(row);
      this.#tell();
    };
    stream.onerror = () => {
      this.connected = false;
      if (stream.readyState === EventSource.CLOSED) setTimeout(() => this.#connect(), AGAIN); // else the browser tries by itself
      this.#tell();
    };
  }

  /** @param {any} row */
  #take(row) {
    if (row.event !== "report") this.t = Math.max(this.t, row.t ?? 0);
    const program = this.programs.get(row.program);
    switch (row.event) {
      case "run": this.command = row.command; this.status = "running"; break;
      case "program": this.programs.set(row.program, new Program(row)); break;
      case "steps": program?.take(row); break;
      case "advice": if (program) program.advice = row.rows; break;
      case "message":
        this.messages.push(row);
        this.said++;
        if (this.messages.length > MESSAGES) this.messages.shift();
        break;
      case "end": this.status = row.status; this.error = row.error; break;
      case "gone": this.status = "gone"; break;
      case "report": this.reported = true; break;
    }
  }

  #tell() {
    for (const listener of this.listeners) listener();
  }
}
