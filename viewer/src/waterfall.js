// A whole as the sum of its parts, each beginning where the one before it ends.

import { Chart, colour, fill } from "./chart.js";
import { table } from "./dom.js";
import { percent } from "./format.js";

const ROW = 22, NAMES = 92, VALUES = 176; // pixels

/**
 * @param {{name: string, value: number, hue?: string}[]} parts negative ones go back @param {string} label
 * @param {(value: number) => string} show @param {{whole: number, total: string}} options what shares are of, and what the last bar is called
 */
export function waterfall(parts, label, show, { whole, total }) {
  let sum = 0, [low, high] = [0, 0];
  const rows = parts.map((part, i) => {
    const from = sum;
    sum += part.value;
    [low, high] = [Math.min(low, sum), Math.max(high, sum)];
    return { ...part, from, to: sum, hatch: i };
  });
  rows.push({ name: total, value: sum, from: 0, to: sum, hue: "soft", hatch: 0 });
  const said = (/** @type {typeof rows[0]} */ row) => `${row.name} ${show(row.value)}, ${percent(row.value, whole)}`;
  const chart = new Chart({
    height: ROW * rows.length, step: ROW, label: `${label}: ${rows.map(said).join("; ")}`,
    draw(g, width) {
      const scale = Math.max(1, width - NAMES - VALUES) / (high - low || 1), px = (/** @type {number} */ value) => NAMES + (value - low) * scale;
      g.textBaseline = "middle";
      rows.forEach((row, i) => {
        const y = i * ROW, [a, b] = [px(Math.min(row.from, row.to)), px(Math.max(row.from, row.to))];
        g.fillStyle = colour("ink");
        g.fillText(row.name, 0, y + ROW / 2, NAMES - 6);
        g.fillText(`${show(row.value)} · ${percent(row.value, whole)}`, Math.min(b + 6, width - VALUES + 6), y + ROW / 2, VALUES - 8);
        g.fillStyle = fill(g, row.hue ?? row.name, row.hatch);
        g.fillRect(a, y + 3, Math.max(1, b - a), ROW - 6);
        g.fillStyle = colour("line");
        if (i < rows.length - 1) g.fillRect(px(row.to), y + ROW - 3, 1, 6);
      });
      g.textBaseline = "alphabetic";
    },
    read: (_, y) => { const row = rows[Math.floor(y / ROW)]; return row ? said(row) : ""; },
    rows: () => table([{ name: "part", value: (row) => row.name, words: true }, { name: "value", value: (row) => row.value, show }, { name: "share", value: (row) => row.value, show: (value) => percent(value, whole) }], rows, label),
  });
  return chart.node;
}
