// A column for every tile, stacked by kind, against the limit.

import { Chart, colour, fill, limitLine, tag } from "../chart.js";
import { table } from "../dom.js";
import { bytes, plain } from "../format.js";
import { moved, zoomed } from "./range.js";
import { look } from "./categories.js";
import { fullestOn } from "./tiles.js";

const AXIS = 24; // pixels below the columns
const ROWS = 2000; // of the table

/**
 * @typedef {{
 *   tiles: import("./tiles.js").Tiles, held: () => import("./tiles.js").Held, range: () => [number, number], highest: () => number,
 *   chosen: () => number, choose: (place: number) => void, look: (range: [number, number]) => void, whole: () => [number, number], out: () => void,
 * }} Seen
 * `range` is what is in sight, `whole` what there is to see, both places of tiles; `out` shows more than the whole.
 */

/** @param {Seen} seen */
export function columnsChart(seen) {
  const { tiles } = seen;
  const place = (/** @type {number} */ x, /** @type {number} */ width) => {
    const [a, b] = seen.range(), { total } = seen.held();
    const first = Math.min(b - 1, a + Math.floor((x * (b - a)) / width)), stop = Math.max(first + 1, Math.min(b, a + Math.floor(((x + 1) * (b - a)) / width)));
    let most = first;
    for (let i = first; i < stop; i++) if (total[i] > total[most]) most = i;
    return { most, many: stop - first };
  };
  const lookAt = (/** @type {[number, number]} */ range) => {
    const [a, b] = seen.whole();
    seen.look([a + range[0], a + range[1]]);
    return b;
  };
  const within = () => {
    const [a, b] = seen.range(), [first, stop] = seen.whole();
    return { range: /** @type {[number, number]} */ ([a - first, b - first]), count: stop - first };
  };
  return new Chart({
    height: 250,
    label: `Bytes of every tile, ${seen.held().title}, by kind, against the limit of ${bytes(tiles.memory.limit)}`,
    draw(g, width, height) {
      const [a, b] = seen.range(), held = seen.held(), high = height - AXIS, top = seen.highest() * 1.06;
      const across = b - a < width ? width / (b - a) : 1, gap = across >= 4 ? 1 : 0;
      const shown = fullestOn(held.total, a, b, across > 1 ? b - a : width);
      drawScale(g, width, high, top, false);
      const bottom = new Float64Array(shown.length).fill(high);
      for (const { name, values } of held.kinds) {
        g.fillStyle = fill(g, ...look(name));
        g.beginPath(); // one path: of a thousand hatched rectangles each would be set up anew
        for (let i = 0; i < shown.length; i++) {
          const tall = (high * values[shown[i]]) / top;
          if (tall <= 0) continue;
          const x = Math.floor(i * across), y = Math.round(bottom[i] - tall);
          g.rect(x, y, Math.max(1, Math.floor((i + 1) * across) - x - gap), Math.round(bottom[i]) - y);
          bottom[i] -= tall;
        }
        g.fill();
      }
      drawScale(g, width, high, top, true);
      ipuMarks(g, width, high, a, b, tiles);
      if (tiles.memory.limit <= top) limitLine(g, width, high - (high * tiles.memory.limit) / top, "limit " + bytes(tiles.memory.limit));
      const chosen = seen.chosen();
      if (chosen >= a && chosen < b) {
        const x = ((chosen - a + 0.5) * width) / (b - a);
        g.fillStyle = colour("ink");
        g.beginPath(); g.moveTo(x, high + 1); g.lineTo(x - 5, high + 9); g.lineTo(x + 5, high + 9); g.fill();
      }
      g.fillStyle = colour("line");
      g.fillRect(0, high, width, 1);
    },
    read(x, _, width) {
      const { most, many } = place(x, width), held = seen.held();
      const over = held.total[most] - tiles.memory.limit;
      return [`${tiles.name(most)}${many > 1 ? `, the fullest of ${many} here` : ""}: ${bytes(held.total[most])}${over > 0 ? `, ${bytes(over)} over the limit` : ""}`,
        ...held.kinds.filter(({ values }) => values[most]).map(({ name, values }) => `  ${name} ${bytes(values[most])}`)].join("\n");
    },
    pick: (x, _, width) => seen.choose(place(x, width).most),
    zoom(x, factor, width) {
      const { range, count } = within();
      if (factor < 1 && range[1] - range[0] === count) seen.out();
      else lookAt(zoomed(range, x / width, factor, count, 16));
    },
    pan(pixels, width) {
      const { range, count } = within();
      lookAt(moved(range, -pixels / width, count));
    },
    rows() {
      const [a, b] = seen.range(), held = seen.held();
      const order = Array.from({ length: b - a }, (_, i) => a + i).sort((p, q) => held.total[q] - held.total[p] || p - q).slice(0, ROWS);
      return table([{ name: `tile${b - a > ROWS ? ` (the ${plain(ROWS)} fullest)` : ""}`, value: (i) => tiles.name(i), words: true }, { name: "bytes", value: (i) => bytes(held.total[i]) },
        ...held.kinds.map(({ name, values }) => ({ name, value: (/** @type {number} */ i) => bytes(values[i]) }))], order, "Bytes of tiles, fullest first");
    },
  });
}

/** Lines at round numbers of bytes, or their words, which are to be seen over what is drawn between.
 * @param {CanvasRenderingContext2D} g @param {number} width @param {number} high @param {number} top @param {boolean} words */
export function drawScale(g, width, high, top, words) {
  let step = 1;
  while (top / step > 6) step *= 2;
  for (let at = step; at < top; at += step) {
    const y = Math.round(high - (high * at) / top), text = bytes(at);
    g.fillStyle = colour("line");
    if (!words) g.fillRect(0, y, width, 1);
    else if (y > 16) tag(g, text, width - g.measureText(text).width - 4, y - 14, "soft");
  }
}

/** @param {CanvasRenderingContext2D} g @param {number} width @param {number} high @param {number} a @param {number} b @param {import("./tiles.js").Tiles} tiles */
function ipuMarks(g, width, high, a, b, tiles) {
  const across = (/** @type {number} */ place) => ((place - a) * width) / (b - a);
  const first = Math.floor(a / tiles.each), last = Math.floor((b - 1) / tiles.each);
  g.fillStyle = colour("soft");
  if (first === last) {
    for (const [text, x, end] of /** @type {[string, number, boolean][]} */ ([[`tile ${a % tiles.each}`, 0, false], [`tile ${(b - 1) % tiles.each}`, width, true]])) {
      g.fillText(text, end ? x - g.measureText(text).width : x, high + 20);
    }
    return;
  }
  let every = 1;
  while ((every * tiles.each * width) / (b - a) < 50) every *= 2;
  for (let ipu = first; ipu <= last; ipu++) {
    const x = Math.max(0, across(ipu * tiles.each)), room = across((ipu + 1) * tiles.each) - x;
    if (ipu > first) { g.fillStyle = colour("paper"); g.fillRect(Math.round(x) - 1, 0, 1, high); g.fillStyle = colour("soft"); g.fillRect(Math.round(x), high, 1, 4); }
    if (room * every > 50 && ipu % every === 0) g.fillText(`IPU ${ipu}`, x + 3, high + 20);
  }
}

