// What time or memory is made of: a bar of parts with its legend, shown in the same way wherever it stands.

import { Chart, fill, legend, limitLine } from "./chart.js";
import { make, table } from "./dom.js";
import { percent } from "./format.js";

/**
 * @typedef {{name: string, value: number, hue?: string}} Part
 * @param {Part[]} parts in the order in which they are drawn @param {string} label what the bar is of
 * @param {(value: number) => string} show @param {{whole?: number, limit?: [number, string], height?: number}} [options]
 * `whole`: what the shares are of, by itself the sum; `limit`: a line to hold the bar against, and its words.
 */
export function partsBar(parts, label, show, options = {}) {
  const used = parts.filter((part) => part.value > 0), sum = used.reduce((all, part) => all + part.value, 0), whole = options.whole ?? sum;
  const most = Math.max(sum, options.limit?.[0] ?? 0) || 1, place = new Map(parts.map((part, i) => [part.name, i]));
  const said = (/** @type {Part} */ part) => `${part.name} ${show(part.value)}, ${percent(part.value, whole)}`;
  const height = options.height ?? 28, margin = options.limit ? 1.06 : 1;
  const chart = new Chart({
    height, label: `${label}: ${used.map(said).join("; ") || "nothing"}`,
    draw(g, width) {
      const top = options.limit ? 18 : 0, scale = width / (most * margin);
      g.fillStyle = fill(g, "idle", 0);
      g.fillRect(0, top, options.limit ? options.limit[0] * scale : width, height - top);
      let x = 0;
      for (const part of used) {
        const wide = part.value * scale;
        g.fillStyle = fill(g, part.hue ?? part.name, place.get(part.name) ?? 0);
        g.fillRect(x, top, Math.max(wide - 1, wide / 2), height - top);
        x += wide;
      }
      if (options.limit) limitLine(g, options.limit[0] * scale, height, options.limit[1], true);
    },
    read(x, _, width) {
      let at = (x * most * margin) / width;
      for (const part of used) { if (at < part.value) return said(part); at -= part.value; }
      return options.limit ? `free: ${show(Math.max(0, options.limit[0] - sum))}` : "";
    },
    rows: () => table([
      { name: "part", value: (part) => part.name, words: true }, { name: "value", value: (part) => part.value, show },
      { name: "share", value: (part) => part.value, show: (value) => percent(value, whole) }], used, label),
  });
  return make("div", { class: "parts" }, chart.node,
    legend(used.map((part) => [`${part.name} ${percent(part.value, whole)}`, part.hue ?? part.name, place.get(part.name) ?? 0])));
}
