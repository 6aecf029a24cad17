// Lines over the runs of a program (uPlot), read by mouse and keyboard, and shown as a table to whoever wants one.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { colour } from "./chart.js";
import { make, say, table } from "./dom.js";
import { plain } from "./format.js";

/**
 * @typedef {(number | null)[]} Column
 * @typedef {{name: string, hue: string, dash?: number[], width?: number, show: (value: number) => string}} Series
 * @typedef {{height: number, label: string, series: Series[], log?: boolean, axis: (value: number) => string}} LineOptions
 */

const ROWS = 200; // of the table: the newest
const WIDE = 66, MARK = 8; // pixels of the axis, and of a point that is no line

/** Whether a series is a single point. @param {uPlot} plot @param {number} series */
function alone({ data }, series) {
  let points = 0;
  for (const value of data[series]) if (value !== null && value !== undefined && ++points > 1) return false;
  return points === 1;
}

export class Lines {
  /** @param {LineOptions} options */
  constructor(options) {
    this.options = options;
    /** @type {[number[], ...Column[]]} */
    this.data = [[], ...options.series.map(() => [])];
    /** @type {number | null} */
    this.probe = null;
    /** @type {[number, number] | null} */
    this.range = null;
    this.box = make("div", { tabindex: 0, role: "img", "aria-label": options.label, class: "lines" });
    const rows = /** @type {HTMLDetailsElement} */ (make("details", { class: "as-table" }, make("summary", null, "As a table")));
    rows.addEventListener("toggle", () => { if (rows.open) rows.append(this.#table()); else rows.lastChild?.remove(); });
    this.node = make("figure", { class: "chart" }, this.box, rows);
    this.box.addEventListener("keydown", (e) => this.#key(e));
    this.box.addEventListener("blur", () => this.#point(null));
    this.plot = this.#plot();
    this.watch = new ResizeObserver(() => { if (this.box.clientWidth) this.plot.setSize({ width: this.box.clientWidth, height: options.height }); });
    this.watch.observe(this.box);
  }

  #plot() {
    const { series, log, axis, height } = this.options;
    const line = { stroke: () => colour("soft"), grid: { stroke: () => colour("line"), width: 1 }, ticks: { stroke: () => colour("line"), width: 1 } };
    const shown = (/** @type {Series} */ s) => (/** @type {uPlot} */ _, /** @type {number | null} */ v) => (v === null || v === undefined ? "–" : s.show(v));
    return new uPlot({
      width: this.box.clientWidth || 600, height,
      scales: { x: { time: false, range: (_, least, most) => this.range ?? [least, most] }, y: log ? { distr: 3 } : {} },
      axes: [{ ...line, values: (_, splits) => splits.map((v) => (v % 1 ? "" : plain(v))) }, { ...line, size: WIDE, values: (_, splits) => splits.map((v) => (v === null ? "" : axis(v))) }],
      series: [{ label: "run", value: (_, v) => (v === null ? "–" : plain(v)) },
        ...series.map((s) => ({ label: s.name, stroke: () => colour(s.hue), width: s.width ?? 1.5, dash: s.dash, value: shown(s), points: { show: alone, size: MARK, fill: () => colour(s.hue) } }))],
      legend: { markers: { dash: (_, i) => (series[i - 1]?.dash ? "dashed" : "solid") } },
      cursor: { points: { size: 6 }, drag: { x: true, y: false }, sync: { key: "runs" } },
      hooks: { setSelect: [(u) => { if (u.select.width > 3) this.#zoom(u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")); }] },
    }, this.data, this.box);
  }

  /** @param {[number[], ...Column[]]} data runs, and a column for each series */
  set(data) {
    this.data = data;
    this.plot.setData(data);
  }

  /** @param {number} from @param {number} to */
  #zoom(from, to) {
    const runs = this.data[0], whole = [runs[0] ?? 0, runs[runs.length - 1] ?? 1];
    this.range = to - from >= whole[1] - whole[0] ? null : [Math.max(whole[0], from), Math.min(whole[1], to)];
    this.plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.plot.setData(this.data);
  }

  /** @param {KeyboardEvent} e */
  #key(e) {
    const last = this.data[0].length - 1;
    if (e.ctrlKey || e.metaKey || e.altKey || last < 0) return;
    const at = this.probe ?? last, step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -Math.ceil(last / 20), PageDown: Math.ceil(last / 20), Home: -last, End: last }[e.key];
    const run = this.data[0][at], [from, to] = this.range ?? [this.data[0][0], this.data[0][last]];
    if (step !== undefined) this.#point(Math.max(0, Math.min(last, at + step * (e.shiftKey && Math.abs(step) === 1 ? 10 : 1))));
    else if (e.key === "w" || e.key === "+") this.#zoom(run - (run - from) / 1.5, run + (to - run) / 1.5);
    else if (e.key === "s" || e.key === "-") this.#zoom(run - (run - from) * 1.5, run + (to - run) * 1.5);
    else return;
    e.preventDefault();
    e.stopPropagation();
  }

  /** Stand on a point and say it, or on none. @param {number | null} at */
  #point(at) {
    this.probe = at;
    if (at === null) { this.plot.setCursor({ left: -10, top: -10 }); return; }
    this.plot.setCursor({ left: this.plot.valToPos(this.data[0][at], "x"), top: this.options.height / 2 });
    say(`run ${plain(this.data[0][at])}: ` + this.options.series.map((s, i) => {
      const value = this.data[i + 1][at];
      return s.name + " " + (value === null || value === undefined ? "none" : s.show(value));
    }).join(", "));
  }

  #table() {
    const runs = this.data[0], first = Math.max(0, runs.length - ROWS);
    return table([{ name: "up to run", value: (at) => runs[at], show: plain },
      ...this.options.series.map((s, i) => ({ name: s.name, value: (/** @type {number} */ at) => this.data[i + 1][at], show: (/** @type {any} */ v) => (v === null ? "–" : s.show(v)) }))],
    runs.slice(first).map((_, i) => first + i).reverse(), this.options.label);
  }

  close() {
    this.watch.disconnect();
    this.plot.destroy();
  }
}
