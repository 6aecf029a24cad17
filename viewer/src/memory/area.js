// Bytes over the program, stacked by kind, against the memory of a tile.

import { Chart, colour, fill, limitLine, tag } from "../chart.js";
import { say, table } from "../dom.js";
import { bytes, cycles, plain } from "../format.js";
import { look } from "./categories.js";
import { drawScale } from "./columns.js";
import { moved, zoomed } from "./range.js";

const AXIS = 20; // pixels below the area

/**
 * @typedef {{
 *   line: import("./moments.js").MomentLine, kinds: {name: string, values: import("../packet.js").Numbers}[], sum: import("../packet.js").Numbers,
 *   max: import("../packet.js").Numbers, mean: import("../packet.js").Numbers, limit: number, peak: number, highest: () => number,
 *   axis: () => import("./moments.js").Axis, range: () => [number, number], look: (range: [number, number]) => void,
 *   chosen: () => [number, number] | null, choose: (from: number, to: number, done: boolean) => void, name: (moment: number) => string,
 * }} SeenLine
 * `kinds` add up to `sum`; `chosen` and `choose` are the first and the last moment of a range.
 */

/** @param {SeenLine} seen */
export function areaChart(seen) {
  const { line, limit } = seen;
  const at = (/** @type {number} */ x, /** @type {number} */ width) => {
    const [first, stop] = line.on(Math.floor(x), width, seen.range(), seen.axis());
    let most = first;
    for (let i = first; i < stop; i++) if (seen.max[i] > seen.max[most]) most = i;
    return most;
  };
  const text = (/** @type {number} */ moment) => [`moment ${moment}, from cycle ${plain(line.start[moment])}: ${seen.name(moment)}`,
    `fullest tile at that moment ${bytes(seen.max[moment])}, mean ${bytes(seen.mean[moment])}`,
    ...seen.kinds.filter(({ values }) => values[moment]).map(({ name, values }) => `  ${name} ${bytes(values[moment])}`)].join("\n");
  const chart = new Chart({
    height: 280,
    label: `Bytes of the fullest tile over the program by kind, the fullest tile of each moment and the mean, against the limit of ${bytes(limit)}; the peak is at moment ${seen.peak}`,
    draw(g, width, height) {
      const range = seen.range(), axis = seen.axis(), high = height - AXIS, top = seen.highest() * 1.08;
      drawScale(g, width, high, top, false);
      const bottom = new Float64Array(width).fill(high), moments = new Int32Array(width), most = new Float64Array(width), mean = new Float64Array(width);
      for (let x = 0; x < width; x++) {
        const [first, stop] = line.on(x, width, range, axis);
        let worst = first;
        for (let i = first; i < stop; i++) {
          if (seen.sum[i] > seen.sum[worst]) worst = i;
          most[x] = Math.max(most[x], seen.max[i]);
          mean[x] += seen.mean[i] / (stop - first);
        }
        moments[x] = worst;
      }
      for (const { name, values } of seen.kinds) {
        g.fillStyle = fill(g, ...look(name));
        g.beginPath();
        for (let x = 0; x < width; x++) {
          const tall = (high * values[moments[x]]) / top;
          if (tall <= 0) continue;
          const y = Math.round(bottom[x] - tall);
          g.rect(x, y, 1, Math.round(bottom[x]) - y);
          bottom[x] -= tall;
        }
        g.fill();
      }
      curve(g, most, (value) => high - (high * value) / top, []);
      curve(g, mean, (value) => high - (high * value) / top, [2, 3]);
      drawScale(g, width, high, top, true);
      if (limit <= top) limitLine(g, width, high - (high * limit) / top, "limit " + bytes(limit));
      const chosen = seen.chosen();
      if (chosen && chosen[1] >= range[0] && chosen[0] < range[1]) {
        const from = Math.max(0, line.share(chosen[0], range, axis)) * width, to = Math.min(1, line.share(chosen[1] + 1, range, axis)) * width;
        g.fillStyle = colour("focus");
        g.globalAlpha = 0.22;
        if (to - from < width) g.fillRect(from, 0, Math.max(1, to - from), high);
        g.globalAlpha = 1;
        g.fillRect(from - 1, 0, 2, high);
        g.fillRect(Math.max(from, to - 1), 0, 2, high);
      }
      peakMark(g, width, high, (line.share(seen.peak, range, axis) + line.share(seen.peak + 1, range, axis)) / 2, high - (high * (seen.max[seen.peak] ?? 0)) / top, "peak " + bytes(seen.max[seen.peak] ?? 0));
      g.fillStyle = colour("line");
      g.fillRect(0, high, width, 1);
      g.fillStyle = colour("soft");
      const ends = axis === "moments" ? [`moment ${range[0]}`, `moment ${range[1] - 1}`] : [`moment ${range[0]}`, `moment ${range[1] - 1}, ${cycles(line.cycles(...range))} later; each loop is drawn once`];
      g.fillText(ends[0], 0, high + 14);
      g.fillText(ends[1], width - g.measureText(ends[1]).width, high + 14);
    },
    read: (x, _, width) => (line.count ? text(at(x, width)) : ""),
    pick(x, _, width) { const moment = at(x, width); seen.choose(moment, moment, true); },
    drag(from, to, width, done) {
      const range = seen.range(), axis = seen.axis();
      seen.choose(line.at(from / width, range, axis), line.at(to / width, range, axis), done);
    },
    zoom(x, factor, width) {
      const [a, b] = seen.range(), moment = line.at(x / width, [a, b], seen.axis());
      seen.look(zoomed([a, b], (moment - a) / (b - a), factor, line.count, 8));
    },
    pan: (pixels, width) => seen.look(moved(seen.range(), -pixels / width, line.count)),
    keys(key, x, width) {
      const chosen = seen.chosen(), here = at(x, width);
      if (key === "[") seen.choose(here, Math.max(here, chosen?.[1] ?? here), true);
      else if (key === "]") seen.choose(Math.min(here, chosen?.[0] ?? here), here, true);
      else if (key === "j" || key === "k") {
        const next = Math.max(0, Math.min(line.count - 1, (chosen?.[0] ?? seen.peak) + (key === "j" ? 1 : -1)));
        seen.choose(next, next, false);
        say(text(next));
        return true;
      } else return false;
      const now = seen.chosen();
      if (now) say(`moments ${now[0]} to ${now[1]}`);
      return true;
    },
    rows() {
      const [a, b] = seen.range(), step = Math.max(1, Math.ceil((b - a) / 500));
      const fullest = Array.from({ length: Math.ceil((b - a) / step) }, (_, i) => {
        let most = a + i * step;
        for (let m = most; m < Math.min(b, a + (i + 1) * step); m++) if (seen.max[m] > seen.max[most]) most = m;
        return most;
      });
      return table([{ name: step > 1 ? `moment (the fullest of each ${step})` : "moment", value: (m) => m }, { name: "cycle", value: (m) => plain(line.start[m]) }, { name: "operation", value: (m) => seen.name(m), words: true },
        { name: "fullest tile", value: (m) => bytes(seen.max[m]) }, { name: "mean", value: (m) => bytes(seen.mean[m]) },
        ...seen.kinds.map(({ name, values }) => ({ name, value: (/** @type {number} */ m) => bytes(values[m]) }))], fullest, "Bytes over the program");
    },
  });
  return chart;
}

/** A line of steps, with a rim to be seen over any hue. @param {CanvasRenderingContext2D} g @param {Float64Array} values @param {(value: number) => number} y @param {number[]} dash */
function curve(g, values, y, dash) {
  for (const [hue, thick] of /** @type {[string, number][]} */ ([["paper", 3.5], ["ink", 1.5]])) {
    g.strokeStyle = colour(hue);
    g.lineWidth = thick;
    g.setLineDash(hue === "paper" ? [] : dash);
    g.beginPath();
    values.forEach((value, x) => g.lineTo(x + 0.5, y(value)));
    g.stroke();
  }
  g.setLineDash([]);
}

/** @param {CanvasRenderingContext2D} g @param {number} width @param {number} high @param {number} share @param {number} y @param {string} text */
function peakMark(g, width, high, share, y, text) {
  if (!(share >= 0 && share <= 1)) return;
  const x = share * width, room = g.measureText(text).width + 12;
  g.fillStyle = colour("ink");
  g.beginPath(); g.moveTo(x, y - 1); g.lineTo(x - 5, y - 10); g.lineTo(x + 5, y - 10); g.fill();
  tag(g, text, x + room > width ? x - room : x + 8, Math.max(0, Math.min(high - 14, y - 16)), "ink");
}
