// The tiles of an IPU as cells of a grid, as they are numbered; all IPUs side by side.

import { Chart, colour } from "../chart.js";
import { make, say, table } from "../dom.js";
import { bytes, plain } from "../format.js";

const TITLE = 15, BETWEEN = 10; // pixels above a chip, and between chips
const LIGHT = [[0xee, 0xf2, 0xf6], [0xa3, 0xc8, 0xe4], [0x3b, 0x82, 0xba], [0x08, 0x30, 0x5f]];
const DARK = [[0x20, 0x26, 0x2c], [0x1c, 0x4d, 0x7a], [0x3d, 0x92, 0xd0], [0xb4, 0xdc, 0xff]];

const LIGHT_OVER = [[0xf5, 0xa8, 0x5c], [0xd5, 0x5e, 0x00], [0x7a, 0x28, 0x00]];
const DARK_OVER = [[0xb3, 0x4a, 0x00], [0xff, 0x8c, 0x3a], [0xff, 0xc0, 0x80]];

/** Is the page dark? Then more is brighter, else darker: either way people of any eyes see more from less. */
const dark = () => parseInt(colour("paper").slice(1, 3), 16) < 0x80;

/** @param {number} share 0 to 1 @param {boolean} over the limit @returns {[number, number, number]} */
function ramp(share, over) {
  const stops = over ? (dark() ? DARK_OVER : LIGHT_OVER) : dark() ? DARK : LIGHT, at = Math.max(0, Math.min(1, share)) * (stops.length - 1), low = Math.min(stops.length - 2, Math.floor(at));
  return /** @type {any} */ (stops[low].map((v, i) => Math.round(v + (stops[low + 1][i] - v) * (at - low))));
}

/** The ramp as pixels. @param {boolean} over */
const pixels = (over) => new Uint32Array(256).map((_, i) => { const [r, g, b] = ramp(i / 255, over); return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0; });

/** Cells in a row of a chip: wide rather than high, and the same for chips of one size. @param {number} tiles */
export function cellsAcross(tiles) {
  let across = tiles < 64 ? Math.max(1, Math.ceil(Math.sqrt(tiles * 2))) : 64;
  while (across >= 64 && across * across < 1.4 * tiles) across *= 2;
  return across;
}

/**
 * @param {{
 *   tiles: import("./tiles.js").Tiles, ipu: () => number | null, values: () => import("../packet.js").Numbers, total: () => import("../packet.js").Numbers, what: () => string,
 *   highest: () => number, most: () => number, limited: () => boolean, chosen: () => number, choose: (place: number) => void, open: (ipu: number | null) => void,
 * }} seen
 * `values` are the bytes that colour the cells, `highest` the end of their scale, `most` the bytes of the fullest tile, `limited` whether they are all that a tile holds.
 */
export function mapChart(seen) {
  const { tiles } = seen, { limit } = tiles.memory;
  const across = cellsAcross(tiles.each), down = Math.ceil(tiles.each / across);
  /** Where the keyboard is: a tile of the one IPU, or an IPU. @type {number | null} */
  let cursor = null;

  const shown = () => { const one = seen.ipu(); return one === null ? Array.from({ length: tiles.ipus }, (_, i) => i) : [one]; };
  /** @param {number} width */
  const layout = (width) => {
    const chips = shown().length;
    let cell = Math.max(1, Math.min(24, Math.floor(width / across)));
    const size = (/** @type {number} */ c) => { const row = Math.max(1, Math.floor((width + BETWEEN) / (across * c + BETWEEN))); return { row, height: Math.ceil(chips / row) * (down * c + TITLE + BETWEEN) }; };
    while (cell > 1 && size(cell).height > (chips > 1 ? 600 : 400)) cell--;
    return { cell, wide: across * cell + BETWEEN, high: down * cell + TITLE + BETWEEN, ...size(cell) };
  };
  /** @param {number} x @param {number} y @param {number} width */
  const at = (x, y, width) => {
    const { cell, wide, high, row } = layout(width), chips = shown();
    const column = Math.floor(x / wide), line = Math.floor(y / high), ipu = chips[line * row + column];
    if (ipu === undefined || column >= row) return null;
    const cx = Math.floor((x - column * wide) / cell), cy = Math.floor((y - line * high - TITLE) / cell);
    const tile = cy >= 0 && cx < across ? cy * across + cx : -1;
    return { ipu, place: tile >= 0 && tile < tiles.each ? ipu * tiles.each + tile : null };
  };
  const text = (/** @type {number} */ place) => {
    const bytesHere = seen.total()[place], over = bytesHere - limit;
    return `${tiles.name(place)}: ${bytes(bytesHere)}${over > 0 ? `, ${bytes(over)} over the limit` : ""}${seen.limited() ? "" : `\n  ${seen.what()} ${bytes(seen.values()[place])}`}`;
  };
  /** @param {number} ipu */
  const ofIpu = (ipu) => {
    const total = seen.total();
    let max = 0, over = 0;
    for (let i = ipu * tiles.each; i < (ipu + 1) * tiles.each; i++) { max = Math.max(max, total[i]); if (total[i] > limit) over++; }
    return { max, over };
  };

  const chart = new Chart({
    height: 300,
    label: `The tiles ${tiles.ipus > 1 ? "of each IPU " : ""}as cells, row by row as they are numbered, coloured by bytes`,
    draw(g, width) {
      const { cell, wide, high, row, height } = layout(width), chips = shown(), values = seen.values(), total = seen.total(), most = seen.highest();
      if (chart.options.height !== height) { chart.options.height = height; chart.canvas.style.height = height + "px"; chart.repaint(); return; }
      const colours = pixels(false), above = pixels(true), beyond = Math.max(1, seen.most() - limit);
      const small = document.createElement("canvas");
      small.width = across;
      small.height = down;
      const s = /** @type {CanvasRenderingContext2D} */ (small.getContext("2d")), image = s.createImageData(across, down), cells = new Uint32Array(image.data.buffer);
      g.imageSmoothingEnabled = false;
      chips.forEach((ipu, i) => {
        const left = (i % row) * wide, top = Math.floor(i / row) * high, first = ipu * tiles.each;
        cells.fill(0);
        for (let t = 0; t < tiles.each; t++) {
          const over = total[first + t] - limit;
          cells[t] = over > 0 && seen.limited() ? above[Math.floor((255 * over) / beyond)] : colours[Math.min(255, Math.floor((255 * values[first + t]) / most))];
        }
        s.putImageData(image, 0, 0);
        g.drawImage(small, left, top + TITLE, across * cell, down * cell);
        if (cell >= 12) {
          g.fillStyle = colour("paper");
          for (let c = 1; c < across; c++) g.fillRect(left + c * cell, top + TITLE, 1, down * cell);
          for (let c = 1; c < down; c++) g.fillRect(left, top + TITLE + c * cell, across * cell, 1);
          if (seen.limited()) {
            g.fillStyle = colour("paper");
            for (let t = 0; t < tiles.each; t++) if (total[first + t] > limit) g.fillText("×", left + (t % across) * cell + cell / 2 - 3, top + TITLE + Math.floor(t / across) * cell + cell / 2 + 4);
          }
        }
        const { max, over: count } = ofIpu(ipu), title = `IPU ${ipu}`, more = ` ${bytes(max)}${count ? `, ${count} over` : ""}`;
        g.fillStyle = count ? colour("bad") : colour("ink");
        g.fillText(title + (g.measureText(title + more).width < wide - BETWEEN ? more : count ? " ×" : ""), left, top + 11);
      });
      const mark = (/** @type {number} */ place, /** @type {string} */ hue) => {
        const i = chips.indexOf(Math.floor(place / tiles.each)), t = place % tiles.each;
        if (i < 0) return;
        const size = Math.max(cell, 4), x = (i % row) * wide + (t % across) * cell, y = Math.floor(i / row) * high + TITLE + Math.floor(t / across) * cell;
        g.lineWidth = 2;
        for (const [line, more] of /** @type {[string, number][]} */ ([["paper", 3], [hue, 1]])) { g.strokeStyle = colour(line); g.strokeRect(x - more, y - more, size + 2 * more, size + 2 * more); }
      };
      mark(seen.chosen(), "ink");
      if (cursor === null) return;
      if (chips.length === 1) mark(cursor, "focus");
      else {
        const i = chips.indexOf(cursor);
        g.strokeStyle = colour("focus");
        g.lineWidth = 2;
        g.strokeRect((i % row) * wide - 1, Math.floor(i / row) * high, wide - BETWEEN + 2, high - BETWEEN + 2);
      }
    },
    read(x, y, width) {
      const here = at(x, y, width);
      return here === null ? "" : here.place === null ? ipuText(here.ipu) : text(here.place);
    },
    pick(x, y, width) {
      const here = at(x, y, width);
      if (!here) return;
      if (here.place !== null) seen.choose(here.place);
      else seen.open(here.ipu);
    },
    zoom(x, factor, width) {
      if (factor < 1) { if (tiles.ipus > 1) seen.open(null); }
      else if (seen.ipu() === null) seen.open(at(x, TITLE, width)?.ipu ?? 0);
    },
    keys(key, _, width) {
      const chips = shown(), many = chips.length > 1, { row } = layout(width), home = many ? Math.floor(seen.chosen() / tiles.each) : seen.chosen();
      const first = many ? 0 : chips[0] * tiles.each, count = many ? chips.length : tiles.each;
      if (cursor === null || cursor < first || cursor >= first + count) cursor = home;
      const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: many ? -row : -across, ArrowDown: many ? row : across, Home: -Infinity, End: Infinity }[key];
      if (step !== undefined) cursor = Math.max(first, Math.min(first + count - 1, cursor + step));
      else if (key === "Enter" || (many && (key === "w" || key === "+"))) { const to = cursor; cursor = null; if (many) seen.open(to); else seen.choose(to); return true; }
      else return false;
      say(many ? ipuText(cursor) : text(cursor));
      return true;
    },
    rows() {
      const total = seen.total(), chips = shown();
      if (chips.length > 1) return table([{ name: "IPU", value: (i) => i }, { name: "fullest tile", value: (i) => bytes(ofIpu(i).max) }, { name: "tiles over the limit", value: (i) => ofIpu(i).over }], chips, "IPUs");
      const order = Array.from({ length: tiles.each }, (_, t) => chips[0] * tiles.each + t).sort((p, q) => total[q] - total[p] || p - q);
      return table([{ name: "tile", value: (i) => i % tiles.each }, { name: "row", value: (i) => Math.floor((i % tiles.each) / across) }, { name: "column", value: (i) => (i % tiles.each) % across },
        { name: "bytes", value: (i) => bytes(total[i]) }, ...(seen.limited() ? [] : [{ name: seen.what(), value: (/** @type {number} */ i) => bytes(seen.values()[i]) }])], order.slice(0, 2000), "Tiles, fullest first");
    },
  });
  const ipuText = (/** @type {number} */ ipu) => { const { max, over } = ofIpu(ipu); return `IPU ${ipu}: fullest tile ${bytes(max)}${over ? `, ${plain(over)} tiles over the limit` : ""}`; };
  return chart;
}

/** What the colours of the map mean. @param {number} highest bytes at the end of the scale @param {number} limit @param {number} most bytes of the fullest tile, or 0 where the limit does not matter */
export function mapKey(highest, limit, most) {
  const strip = (/** @type {boolean} */ over) => {
    const box = /** @type {HTMLCanvasElement} */ (make("canvas", { width: 180, height: 12, "aria-hidden": "true", style: "width:180px;height:12px" }));
    requestAnimationFrame(() => {
      const g = /** @type {CanvasRenderingContext2D} */ (box.getContext("2d"));
      for (let x = 0; x < 180; x++) { g.fillStyle = `rgb(${ramp(x / 179, over)})`; g.fillRect(x, 0, 1, 12); }
    });
    return box;
  };
  return make("p", { class: "key" }, make("span", null, "0 B", strip(false), bytes(highest)), most > limit ? make("span", null, "× over the limit", strip(true), bytes(most)) : null,
    make("span", null, "Cells are tiles as they are numbered, row by row: not their places on the die."));
}
