// From one whole to another: the first as a bar, each difference where the one before it ended, the second as a bar.

import { Chart, colour, fill } from "./chart.js";
import { table } from "./dom.js";
import { signed } from "./format.js";

const ROW = 22, VALUES = 130; // pixels
const NEAR = 0.5; // differences that span less than this share of the wholes are drawn larger, the wholes cut off

/**
 * @typedef {{name: string, difference: number, more?: string, picked?: () => void}} Step `more` is said of it besides
 * @param {{name: string, value: number}} a @param {{name: string, value: number}} b @param {Step[]} steps that lead from `a` to `b`
 * @param {string} label @param {(value: number) => string} show
 */
export function differences(a, b, steps, label, show) {
  let at = a.value, low = Math.min(a.value, b.value), high = Math.max(a.value, b.value);
  const rows = [{ name: a.name, from: 0, to: a.value, text: show(a.value), hue: "soft", hatch: 0, step: /** @type {Step | null} */ (null) },
    ...steps.map((step) => {
      const from = at;
      at += step.difference;
      [low, high] = [Math.min(low, at), Math.max(high, at)];
      return { name: step.name, from, to: at, text: signed(step.difference, show), hue: step.difference > 0 ? "bubble" : "compute", hatch: step.difference > 0 ? 1 : 0, step };
    }),
    { name: b.name, from: 0, to: b.value, text: show(b.value), hue: "soft", hatch: 0, step: null }];
  const cut = low > 0 && high - low < NEAR * high ? Math.max(0, low - (high - low) * 0.4) : 0;
  const said = (/** @type {typeof rows[0]} */ row) => `${row.name}: ${row.text}`;
  const rowAt = (/** @type {number} */ y) => rows[Math.floor(y / ROW)];
  return new Chart({
    height: ROW * rows.length, step: ROW, label: `${label}: ${rows.map(said).join("; ")}`,
    draw(g, width) {
      const names = Math.min(340, width * 0.34), scale = Math.max(1, width - names - VALUES) / (high - cut || 1);
      const px = (/** @type {number} */ value) => names + (Math.max(value, cut) - cut) * scale;
      g.textBaseline = "middle";
      rows.forEach((row, i) => {
        const y = i * ROW, [from, to] = [px(Math.min(row.from, row.to)), px(Math.max(row.from, row.to))];
        g.fillStyle = colour("ink");
        g.fillText(fitting(g, row.name, names - 8), 0, y + ROW / 2);
        g.fillText(row.text, to + 6, y + ROW / 2, VALUES - 8);
        g.fillStyle = fill(g, row.hue, row.hatch);
        g.fillRect(from, y + 3, Math.max(1, to - from), ROW - 6);
        g.fillStyle = colour("line");
        if (i < rows.length - 1) g.fillRect(px(row.to), y + ROW - 3, 1, 6);
        if (cut && !row.step) { // the bar is not drawn from nothing on
          g.fillStyle = colour("paper");
          for (const x of [8, 13]) { g.save(); g.translate(names + x, y + ROW / 2); g.rotate(0.4); g.fillRect(-1, -ROW / 2, 2, ROW); g.restore(); }
        }
      });
      g.textBaseline = "alphabetic";
    },
    read: (_, y) => { const row = rowAt(y); return row ? [said(row), row.step?.more].filter(Boolean).join("; ") : ""; },
    pick: (_, y) => rowAt(y)?.step?.picked?.(),
    rows: () => table([{ name: "what", value: (row) => row.name, words: true }, { name: "difference", value: (row) => row.text }], rows, label),
  }).node;
}

/** As much of a text as there is room for. @param {CanvasRenderingContext2D} g @param {string} text @param {number} width */
function fitting(g, text, width) {
  if (g.measureText(text).width <= width) return text;
  let [few, many] = [0, text.length];
  while (few + 1 < many) {
    const middle = (few + many) >> 1;
    if (g.measureText("…" + text.slice(-middle)).width <= width) few = middle;
    else many = middle;
  }
  return "…" + text.slice(-few);
}
