// Sync, exchange, compute and host over time: for the whole program in one strip, and for what is in sight a lane for
// each IPU under the calls and loops that it is in.

import { Chart, colour, fill, tag } from "../../chart.js";
import { table } from "../../dom.js";
import { percent, plain, seconds } from "../../format.js";
import { Grid } from "../../grid.js";
import { PARTS, at } from "../../moments.js";

/** @typedef {import("../timeline.js").Timeline} Timeline */

/** Hatch of each part, so that it can be told without colours. */
export const HATCH = { sync: 6, exchange: 1, links: 4, compute: 0, host: 3, overhead: 2 };
const DEEPEST = 4; // rows of bars
const BAR = 16;
const RULER = 16;

/** What of the whole program falls on each pixel, by IPU and of all of them. @param {Timeline} t @param {number} width */
function wholeShares(t, width) {
  const { line, ipus, window: { axis, end } } = t, key = [width, axis.name].join();
  if (t.whole?.key !== key) {
    const lanes = shares(line, axis, 0, end, width, ipus);
    const all = lanes.map((part) => { const sum = new Float32Array(width); for (let i = 0; i < part.length; i++) sum[i % width] += part[i]; return sum; });
    t.whole = { key, lanes, all };
  }
  return t.whole;
}

/** How much of each pixel each part takes, `[part][lane × width]`; what is shorter than a pixel still counts.
 * @param {import("../../moments.js").Line} line @param {import("../../moments.js").Axis} axis
 * @param {number} from @param {number} to @param {number} width @param {number} lanes 1: all IPUs in one */
function shares(line, axis, from, to, width, lanes) {
  const found = PARTS.map(() => new Float32Array(lanes * width)), scale = width / (to - from);
  for (let i = at(axis, from); i < line.count && axis.edges[i] < to; i++) {
    const unit = axis.unit(i) * scale, row = lanes > 1 ? Math.min(lanes - 1, Math.max(0, line.ipu[i])) * width : 0;
    let x = (axis.edges[i] - from) * scale;
    for (const part of line.used) {
      const long = line.parts[part][i] * unit;
      if (!long) continue;
      const b = Math.min(width, x + long), into = found[part], pixel = Math.floor(x);
      if (pixel >= 0 && b < pixel + 1) into[row + pixel] += long;
      else for (let a = Math.max(0, x); a < b;) {
        const next = Math.min(b, Math.floor(a) + 1);
        into[row + Math.floor(a)] += next - a;
        a = next;
      }
      x += long;
    }
  }
  return found;
}

/** Draws shares from below up, in whole pixels, 3 at least; pixels alike are one rectangle.
 * @param {CanvasRenderingContext2D} g @param {Float32Array[]} shares @param {number} lane @param {number} width @param {number} top @param {number} tall */
function strip(g, shares, lane, width, top, tall) {
  const low = new Uint16Array(width), high = new Uint16Array(width), exact = new Float32Array(width);
  g.fillStyle = colour("idle");
  g.fillRect(0, top, width, tall);
  PARTS.forEach((name, part) => {
    g.fillStyle = fill(g, name, HATCH[name]);
    for (let x = 0; x < width; x++) {
      const i = lane * width + x, all = shares[0][i] + shares[1][i] + shares[2][i] + shares[3][i] + shares[4][i];
      if (shares[part][i]) high[x] = Math.round(Math.min(1, (exact[x] += shares[part][i] * Math.max(1, 3 / (tall * all)))) * tall);
    }
    g.beginPath();
    for (let x = 0, run = 1; x < width; x += run) {
      for (run = 1; x + run < width && low[x + run] === low[x] && high[x + run] === high[x];) run++;
      if (high[x] > low[x]) g.rect(x, top + tall - high[x], run, high[x] - low[x]);
    }
    g.fill();
    low.set(high);
  });
}

/** The whole program, with the window. @param {Timeline} t */
export function overview(t) {
  const { summary } = t, tall = 34;
  const chart = new Chart({
    height: tall + 8,
    label: "The whole program: " + PARTS.map((name) => `${name} ${percent(t.by(name), summary.cycles)}`).join(", "),
    draw: (g, width) => {
      const { window } = t;
      strip(g, wholeShares(t, width).all, 0, width, 4, tall);
      const a = (window.from / window.end) * width, b = (window.to / window.end) * width;
      g.fillStyle = colour("paper");
      g.globalAlpha = 0.65;
      g.fillRect(0, 0, a, tall + 8);
      g.fillRect(b, 0, width - b, tall + 8);
      g.globalAlpha = 1;
      g.strokeStyle = colour("ink");
      g.lineWidth = 2;
      g.strokeRect(Math.min(width - 4, Math.max(1, a)), 1, Math.max(3, Math.min(width - 1, b) - Math.max(1, a)), tall + 6);
      t.drawRange(g, (position) => (position / window.end) * width, tall + 8);
    },
    read: (x, _y, width) => t.describe(at(t.window.axis, (x / width) * t.window.end)),
    pick: (x, _y, width) => {
      const { window } = t, half = (window.to - window.from) / 2, middle = (x / width) * window.end;
      t.look(middle - half, middle + half);
    },
    drag: (a, b, width) => t.look((a / width) * t.window.end, (b / width) * t.window.end),
    zoom: (_x, factor, width) => t.zoom(width / 2, factor, width),
    pan: (pixels, width) => t.look(t.window.from - (pixels / width) * t.window.end, t.window.to - (pixels / width) * t.window.end),
    keys: (key, x, width) => t.key(key, (x / width) * t.window.end),
    rows: () => table([{ name: "part", value: (row) => row[0], words: true }, { name: "cycles", value: (row) => row[1], show: plain },
      { name: "time", value: (row) => row[1], show: (v) => seconds(v / summary.clock_hz) }, { name: "share", value: (row) => row[1], show: (v) => percent(v, summary.cycles) }],
    [...Object.entries(summary.cycles_by).filter(([, cycles]) => cycles), ["all", summary.cycles]], "The whole program by part"),
  });
  return chart;
}

/** What is in sight. @param {Timeline} t */
export function lanes(t) {
  const { line, ipus } = t;
  const levels = Math.min(DEEPEST, line.folds.reduce((most, fold) => Math.max(most, fold.level + 1), 0));
  const tall = Math.round(Math.max(9, Math.min(40, 420 / ipus))), gap = ipus > 1 ? 3 : 0;
  const under = RULER + levels * BAR, height = under + ipus * (tall + gap);
  const fold = (/** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ width) => {
    const level = Math.floor((y - RULER) / BAR), position = t.window.position(x, width), { edges } = t.window.axis;
    return level < 0 || level >= levels ? null : line.folds.find((f) => f.level === level && edges[f.enter] <= position && edges[f.exit] >= position) ?? null;
  };
  const chart = new Chart({
    height,
    label: `What is in sight, ${ipus > 1 ? "a lane for each IPU" : "one lane"}: sync, exchange, compute and host, under the calls and loops they are in`,
    draw: (g, width) => {
      const { window } = t, parts = window.whole ? wholeShares(t, width).lanes : shares(line, window.axis, window.from, window.to, width, ipus);
      for (let lane = 0; lane < ipus; lane++) strip(g, parts, lane, width, under + lane * (tall + gap), tall);
      ruler(g, t, width);
      bars(g, t, width, levels, under, height);
      names(g, t, width, ipus, under, tall, gap);
      t.drawRange(g, (position) => window.pixel(position, width), height);
      outline(g, t, width, ipus, under, tall, gap);
      if (ipus > 1 && tall >= 9) for (let lane = 0; lane < ipus; lane += tall < 13 ? 4 : 1) tag(g, "IPU " + lane, 3, under + lane * (tall + gap) + Math.max(-2, (tall - 13) / 2), "soft");
    },
    read: (x, y, width) => {
      const inside = fold(x, y, width);
      return inside ? t.describe(inside.enter) : t.say(t.window.position(x, width));
    },
    pick: (x, y, width) => t.choose((fold(x, y, width) ?? { enter: t.momentAt(x, width) }).enter),
    drag: (a, b, width, done) => t.brush(t.momentAt(a, width), t.momentAt(b, width), done),
    zoom: (x, factor, width) => t.zoom(x, factor, width),
    pan: (pixels, width) => t.pan(pixels, width),
    keys: (key, x, width) => t.key(key, t.window.position(x, width)),
    level: () => under + 1,
    rows: () => moments(t),
  });
  return chart;
}

/** @param {CanvasRenderingContext2D} g @param {Timeline} t @param {number} width */
function ruler(g, t, width) {
  const { window, line } = t, { axis } = window, raw = (window.to - window.from) / Math.max(2, width / 120), ten = 10 ** Math.floor(Math.log10(raw));
  const step = Math.max(axis.name === "moments" ? 1 : 0, ten * ([1, 2, 5, 10].find((f) => f * ten >= raw) ?? 10)), numbered = axis.name === "moments" ? axis : line.axes.cycles;
  g.fillStyle = colour("soft");
  let free = -Infinity;
  for (let c = Math.ceil((axis.name === "moments" ? window.from : line.cycle(axis, window.from)) / step) * step; c <= numbered.edges[line.count]; c += step) {
    const i = at(numbered, c), inside = c - numbered.edges[i];
    if (axis.name === "folded" && inside > line.length(i)) { // on to the end of the turns that are not drawn
      c = Math.max(c, Math.floor(numbered.edges[i + 1] / step) * step);
      continue;
    }
    const x = window.pixel(axis.edges[i] + inside, width), text = (axis.name === "moments" ? "moment " : "") + plain(c), wide = g.measureText(text).width + 12;
    if (x + wide > width) break;
    if (x < free) continue;
    free = x + wide;
    g.fillRect(Math.round(x), 2, 1, 12);
    g.fillText(text, x + 4, 12);
  }
}

/** Calls and loops as nested bars; the turns of a loop that are not drawn are struck through.
 * @param {CanvasRenderingContext2D} g @param {Timeline} t @param {number} width @param {number} levels @param {number} under @param {number} height */
function bars(g, t, width, levels, under, height) {
  const { line, window } = t, { edges } = window.axis, free = new Float64Array(levels).fill(-1), chosen = t.chosen();
  g.lineWidth = 1;
  for (const fold of line.folds) {
    if (edges[fold.enter] > window.to) break;
    if (fold.level >= levels || edges[fold.exit] < window.from) continue;
    const a = Math.max(0, window.pixel(edges[fold.enter], width)), b = Math.min(width, window.pixel(edges[fold.exit], width));
    if (b <= free[fold.level]) continue; // narrower than a pixel, beside one that is drawn
    free[fold.level] = Math.floor(b) + 1;
    const y = RULER + fold.level * BAR, wide = Math.max(1, b - a);
    g.fillStyle = colour(fold.enter === chosen ? "ink" : "panel");
    g.fillRect(a, y + 1, wide, BAR - 2);
    g.strokeStyle = colour("line");
    if (wide > 3) g.strokeRect(Math.round(a) + 0.5, y + 1.5, Math.max(1, Math.round(wide) - 1), BAR - 3);
    else { g.fillStyle = colour("soft"); g.fillRect(a, y + 1, wide, BAR - 2); }
    if (wide > 24) {
      g.fillStyle = colour(fold.enter === chosen ? "paper" : "ink");
      g.save();
      g.beginPath();
      g.rect(a, y, wide - 2, BAR);
      g.clip();
      g.fillText(t.foldName(fold), a + 4, y + 12);
      g.restore();
    }
    const c = Math.max(0, window.pixel(line.end(window.axis, fold.exit - 1), width));
    if (b - c >= 3) {
      g.save();
      g.beginPath();
      g.rect(c, under, b - c, height - under);
      g.clip();
      g.strokeStyle = colour("soft");
      g.globalAlpha = 0.35;
      g.beginPath();
      for (let x = c - height; x < b; x += 12) { g.moveTo(x, height); g.lineTo(x + height, 0); }
      g.stroke();
      g.restore();
      const text = "turns like the first";
      if (fold.level === 0 && b - c > g.measureText(text).width + 24) tag(g, text, c + 10, under + 4, "soft");
    }
  }
}

/** The names of moments that are wide enough. @param {CanvasRenderingContext2D} g @param {Timeline} t @param {number} width
 * @param {number} ipus @param {number} under @param {number} tall @param {number} gap */
function names(g, t, width, ipus, under, tall, gap) {
  const { line, window } = t, [first, last] = window.moments();
  if (tall < 16 || last - first > width / 8 || t.context.brief) return;
  const words = line.operations.words("name");
  for (let i = first; i <= last; i++) {
    const operation = line.operation[i];
    if (operation < 0 || !line.length(i)) continue;
    const a = Math.max(ipus > 1 ? 46 : 0, window.pixel(window.axis.edges[i], width)), b = Math.min(width, window.pixel(line.end(window.axis, i), width));
    const text = words.at(operation).slice(0, 60);
    if (text && b - a > g.measureText(text).width + 10) tag(g, text, a + 5, under + Math.min(ipus - 1, Math.max(0, line.ipu[i])) * (tall + gap) + (tall - 13) / 2, "ink");
  }
}

/** A frame around the chosen moment. @param {CanvasRenderingContext2D} g @param {Timeline} t @param {number} width
 * @param {number} ipus @param {number} under @param {number} tall @param {number} gap */
function outline(g, t, width, ipus, under, tall, gap) {
  const { line, window } = t, i = t.chosen();
  if (i < 0) return;
  const a = window.pixel(window.axis.edges[i], width), b = window.pixel(line.end(window.axis, i), width);
  const y = under + Math.min(ipus - 1, Math.max(0, line.ipu[i])) * (tall + gap);
  g.lineWidth = 2;
  for (const [hue, grow] of /** @type {[string, number][]} */ ([["paper", 2], ["ink", 0]])) {
    g.strokeStyle = colour(hue);
    g.strokeRect(a - 1 - grow, y - 1 - grow + 2, Math.max(3, b - a + 2) + 2 * grow, tall - 2 + 2 * grow);
  }
}

/** The moments in sight as a table. @param {Timeline} t */
function moments(t) {
  const { line } = t;
  const number = (/** @type {string} */ title, /** @type {(i: number) => number} */ value) => ({ name: title, width: "110px", text: (/** @type {number} */ i) => plain(value(i)), value });
  const grid = new Grid({
    label: "Moments in sight", height: 320,
    columns: [number("moment", (i) => i),
      { name: "operation", width: "minmax(180px, 1fr)", words: true, text: (i) => t.momentName(i), order: (a, b) => t.momentName(a).localeCompare(t.momentName(b)), indent: (i) => line.depth[i] },
      number("IPU", (i) => line.ipu[i]), number("from cycle", (i) => line.start[i]), ...PARTS.map((part, k) => number(part, (i) => line.parts[k][i])),
      { name: "from", width: "minmax(160px, 1fr)", words: true, text: (i) => t.place(line.operation[i]), order: (a, b) => t.place(line.operation[a]).localeCompare(t.place(line.operation[b])) }],
    chosen: (i) => t.choose(i),
  });
  const refill = () => {
    const [first, last] = t.window.moments();
    grid.fill(Int32Array.from({ length: line.count ? last - first + 1 : 0 }, (_, i) => first + i).filter((i) => line.operation[i] >= 0));
  };
  refill();
  t.whenMoved(grid.node, refill);
  return grid.node;
}
