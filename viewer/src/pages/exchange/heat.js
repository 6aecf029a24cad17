// A square of cells, each as dark as it holds much; read and chosen by mouse and arrows.

import { Chart, colour } from "../../chart.js";
import { make, say } from "../../dom.js";
import { bytes } from "../../format.js";

const LEFT = 62, TOP = 34; // pixels of the names
const SHADES = 128;

/**
 * @typedef {{label: string, height: number, count: () => number, values: () => Float64Array, block: () => number,
 *   name: (row: number) => string, columnName: (column: number) => string, tick: (block: number) => string, chosen: () => [number, number] | null,
 *   choose: (row: number, column: number) => void, rows: () => Node}} HeatOptions
 * `count` rows and as many columns, each `block` of them between two lines.
 */

/** @param {HeatOptions} options */
export function heat(options) {
  /** @type {[number, number]} */
  let cursor = [0, 0];
  const side = (/** @type {number} */ width, /** @type {number} */ height) => Math.max(40, Math.min(width - LEFT - 2, height - TOP - 2));
  const cell = (/** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ width, /** @type {number} */ height) => {
    const count = options.count(), edge = side(width, height), column = Math.floor(((x - LEFT) * count) / edge), row = Math.floor(((y - TOP) * count) / edge);
    return row >= 0 && column >= 0 && row < count && column < count ? /** @type {[number, number]} */ ([row, column]) : null;
  };
  const text = (/** @type {[number, number]} */ [row, column]) => {
    const value = options.values()[row * options.count() + column];
    return `from ${options.name(row)}\nto ${options.columnName(column)}\n${value ? bytes(value) : "nothing"}`;
  };
  const chart = new Chart({
    height: options.height,
    label: options.label,
    draw: (g, width, height) => {
      const count = options.count(), values = options.values(), edge = side(width, height), ramp = shades(), scale = scaleOf(values);
      const dots = devicePixelRatio || 1, wide = Math.round(edge * dots), image = new ImageData(wide, wide), pixels = new Uint32Array(image.data.buffer);
      for (let y = 0, before = -1; y < wide; y++) {
        const row = Math.min(count - 1, Math.floor((y * count) / wide)) * count;
        if (row === before) { pixels.copyWithin(y * wide, (y - 1) * wide, y * wide); continue; }
        before = row;
        for (let x = 0; x < wide; x++) pixels[y * wide + x] = ramp[scale(values[row + Math.min(count - 1, Math.floor((x * count) / wide))])];
      }
      g.putImageData(image, Math.round(LEFT * dots), Math.round(TOP * dots));
      g.fillStyle = colour("soft");
      const block = options.block(), blocks = count / block, room = edge / blocks;
      const each = Math.ceil(Math.max(14 / room, 1)), eachColumn = Math.ceil(Math.max((g.measureText(options.tick(blocks - 1)).width + 8) / room, 1));
      for (let b = 0; b <= blocks; b++) {
        g.fillStyle = colour("line");
        if (room > 5) { g.fillRect(LEFT, TOP + b * room, edge, 1); g.fillRect(LEFT + b * room, TOP, 1, edge); }
        if (b === blocks) continue;
        g.fillStyle = colour("soft");
        const name = options.tick(b), long = g.measureText(name).width;
        if (b % each === 0) g.fillText(name, LEFT - 6 - long, TOP + (b + 0.5) * room + 4);
        if (b % eachColumn === 0) g.fillText(name, LEFT + (b + 0.5) * room - long / 2, TOP - 6);
      }
      g.fillStyle = colour("soft");
      g.fillText("to →", LEFT, 11);
      g.fillText("from ↓", 2, TOP - 6);
      for (const [place, thick] of /** @type {[[number, number] | null, number][]} */ ([[options.chosen(), 2], [document.activeElement === chart.canvas ? cursor : null, 1]])) {
        if (!place) continue;
        const size = edge / count;
        for (const [hue, grow] of /** @type {[string, number][]} */ ([["paper", 2], ["ink", 0.5]])) {
          g.strokeStyle = colour(hue);
          g.lineWidth = thick;
          g.strokeRect(LEFT + place[1] * size - grow, TOP + place[0] * size - grow, size + 2 * grow, size + 2 * grow);
        }
      }
    },
    read: (x, y, width, height) => { const at = cell(x, y, width, height); return at ? text(at) : ""; },
    pick: (x, y, width, height) => {
      const at = cell(x, y, width, height);
      if (at) { cursor = at; options.choose(...at); }
    },
    keys: (key) => {
      const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[key], count = options.count();
      if (step) cursor = [Math.max(0, Math.min(count - 1, cursor[0] + step[0])), Math.max(0, Math.min(count - 1, cursor[1] + step[1]))];
      else if (key === "m") { // the most
        const values = options.values(), at = values.reduce((best, value, i) => (value > values[best] ? i : best), 0);
        cursor = [Math.floor(at / count), at % count];
      } else if (key === "Enter") { options.choose(...cursor); return true; }
      else return false;
      say(text([Math.min(count - 1, cursor[0]), Math.min(count - 1, cursor[1])]));
      return true;
    },
    rows: options.rows,
  });
  chart.canvas.addEventListener("focus", () => chart.repaint());
  return chart;
}

/** The least and the most that shades tell apart: at least two decades, and at most four. @param {Float64Array} values @returns {[number, number]} */
function bounds(values) {
  let least = Infinity, most = 0;
  for (const value of values) if (value) { least = Math.min(least, value); most = Math.max(most, value); }
  return [Math.max(most / 1e4, Math.min(least, most / 100)), most];
}

/** Steps of a scale in proportion to the logarithm: 0 for nothing, 1 for the least. @param {Float64Array} values */
function scaleOf(values) {
  const [least, most] = bounds(values), long = Math.log(most / least) || 1;
  return (/** @type {number} */ value) => (value ? Math.round(1 + ((SHADES - 2) * Math.max(0, Math.log(value / least))) / long) : 0);
}

/** Colours from nothing to the most: away from the paper all the way, so that they are told apart without hues. */
function shades() {
  const hue = (/** @type {string} */ name) => { const text = colour(name); return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16)); };
  const [none, middle, most] = [hue("idle"), hue("exchange"), hue("ink")], ramp = new Uint32Array(SHADES);
  for (let i = 0; i < SHADES; i++) {
    const t = i ? 0.25 + (0.7 * i) / (SHADES - 1) : 0, [a, b, part] = t < 0.6 ? [none, middle, t / 0.6] : [middle, most, (t - 0.6) / 0.4];
    const [red, green, blue] = a.map((x, k) => Math.round(x + (b[k] - x) * part));
    ramp[i] = ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  }
  return ramp;
}

/** The key of the shades. @param {() => Float64Array} values */
export function shadeKey(values) {
  const box = /** @type {HTMLCanvasElement} */ (make("canvas", { width: 160, height: 12, class: "shades", "aria-hidden": "true" })), text = make("span", { class: "note" });
  const node = make("p", { class: "key" }, box, text);
  return { node, repaint: () => {
    const g = /** @type {CanvasRenderingContext2D} */ (box.getContext("2d")), image = new ImageData(160, 12), pixels = new Uint32Array(image.data.buffer), ramp = shades();
    for (let i = 0; i < pixels.length; i++) pixels[i] = ramp[Math.floor(((i % 160) * SHADES) / 160)];
    g.putImageData(image, 0, 0);
    const [least, most] = bounds(values());
    text.textContent = most ? `nothing, ${bytes(least)} or less … ${bytes(most)}, by the logarithm` : "nothing";
  } };
}
