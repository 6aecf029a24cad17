// Where the tensors of a tile lie: addresses at a moment, and over the program.

import { Chart, colour, fill, tag } from "../chart.js";
import { say, table } from "../dom.js";
import { bytes, plain } from "../format.js";
import { sortedBy } from "../order.js";
import { RowsBy } from "../tiles.js";
import { look } from "./categories.js";

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/** @typedef {{tensor: number, from: number, to: number}} Part of the addresses: bytes `from` to `to`; `tensor` −1 is a gap */

/** The placements of one IPU, which are all on one tile. */
export class Placed {
  /** @param {import("../packet.js").Table} table @param {number} ipu @param {number} moments */
  constructor(table, ipu, moments) {
    const of = table.numbers("ipu");
    const rows = new Int32Array(table.count);
    let count = 0;
    for (let i = 0; i < table.count; i++) if (of[i] === ipu) rows[count++] = i;
    this.rows = rows.slice(0, count);
    this.tensor = table.numbers("tensor");
    this.address = table.numbers("address");
    this.bytes = table.numbers("bytes");
    this.first = table.numbers("first");
    this.last = table.numbers("last");
    this.tile = this.rows.length ? table.numbers("tile")[this.rows[0]] : -1;
    this.end = 0;
    for (const i of this.rows) this.end = Math.max(this.end, this.address[i] + this.bytes[i]);
    this.moments = moments;
    /** What lay where at the moment that was asked for last. @type {{moment: number, parts: Part[]} | null} */
    this.known = null;
  }

  /** Bytes of each of so many tensors. @param {number} count */
  sizes(count) {
    const found = new Float64Array(count);
    for (const i of this.rows) found[this.tensor[i]] = Math.max(found[this.tensor[i]], this.bytes[i]);
    return found;
  }

  /** The moment at which most bytes are placed. */
  peak() {
    const change = new Float64Array(this.moments + 1);
    for (const i of this.rows) { change[this.first[i]] += this.bytes[i]; change[this.last[i] + 1] -= this.bytes[i]; }
    let most = 0, sum = 0, when = 0;
    change.forEach((by, moment) => { sum += by; if (sum > most) [most, when] = [sum, moment]; });
    return when;
  }

  /** What lies where at a moment, gaps between included. @param {number} moment @returns {Part[]} */
  at(moment) {
    if (this.known?.moment === moment) return this.known.parts;
    const live = sortedBy(this.rows.filter((i) => this.first[i] <= moment && this.last[i] >= moment), (i) => this.address[i], false);
    /** @type {Part[]} */
    const parts = [];
    let end = 0;
    for (const i of live) {
      if (this.address[i] > end) parts.push({ tensor: -1, from: end, to: this.address[i] });
      parts.push({ tensor: this.tensor[i], from: this.address[i], to: this.address[i] + this.bytes[i] });
      end = Math.max(end, this.address[i] + this.bytes[i]);
    }
    this.known = { moment, parts };
    return parts;
  }
}

/** @type {WeakMap<Part[], Map<number, string>>} */
const lettered = new WeakMap();

/** Letters of the largest tensors among parts. @param {Part[]} parts @returns {Map<number, string>} */
export function letters(parts) {
  let found = lettered.get(parts);
  if (!found) {
    const size = new Map();
    for (const { tensor, from, to } of parts) if (tensor >= 0) size.set(tensor, (size.get(tensor) ?? 0) + to - from);
    found = new Map([...size].sort((a, b) => b[1] - a[1]).slice(0, LETTERS.length).map(([tensor], i) => [tensor, LETTERS[i]]));
    lettered.set(parts, found);
  }
  return found;
}

/**
 * @typedef {{
 *   placed: Placed, tensors: import("./tensors.js").Tensors, limit: number, beside: number, moment: () => number, chosen: () => number | null,
 *   choose: (tensor: number) => void, at: (moment: number) => void,
 * }} SeenAddresses
 * `beside` are bytes without an address (code, stacks), drawn at the end of the memory.
 */

/** @param {SeenAddresses} seen */
const topOf = (seen) => Math.max(seen.limit, seen.placed.end + seen.beside);

/** @param {SeenAddresses} seen */
export function addressStrip(seen) {
  const { placed, tensors, limit, beside } = seen;
  const partAt = (/** @type {number} */ at) => placed.at(seen.moment()).find(({ from, to }) => from <= at && at < to);
  const text = (/** @type {Part} */ part) => part.tensor < 0 ? `a gap of ${bytes(part.to - part.from)} at ${plain(part.from)}`
    : `${tensors.name(part.tensor)}: ${bytes(part.to - part.from)} at ${plain(part.from)}\n  ${tensors.categories.at(part.tensor)}, live ${tensors.life(part.tensor)} ${tensors.where(part.tensor)}`;
  let current = -1;
  return new Chart({
    height: 76,
    label: `Addresses on tile ${placed.tile} at one moment: what lies there and the gaps between`,
    draw(g, width) {
      const parts = placed.at(seen.moment()), top = topOf(seen), across = (/** @type {number} */ at) => (at * width) / top, names = letters(parts), chosen = seen.chosen(), high = 46;
      g.fillStyle = colour("idle");
      g.fillRect(0, 14, width, high);
      let drawn = 0; // pixels: where several parts are on one, the first of them is drawn
      for (const { tensor, from, to } of parts) {
        if (across(to) <= drawn && tensor !== chosen) continue;
        drawn = Math.ceil(across(to));
        const x = across(from), w = Math.max(1, across(to) - x - (across(to - from) > 3 ? 1 : 0));
        if (tensor < 0) { gap(g, x, 14, w, high); if (w > 80) tag(g, "gap " + bytes(to - from), x + 4, 30, "ink"); continue; }
        g.fillStyle = fill(g, ...look(tensors.categories.at(tensor)));
        g.fillRect(x, 14, w, high);
        const letter = names.get(tensor);
        if (letter && w > 12) tag(g, w > 90 ? shorter(g, `${letter} ${tensors.name(tensor)}`, w - 12) : letter, x + 4, 30, "ink");
        if (tensor === chosen) { g.strokeStyle = colour("ink"); g.lineWidth = 3; g.strokeRect(x + 1, 13, Math.max(3, w - 2), high + 2); }
      }
      if (beside) {
        g.fillStyle = fill(g, ...look("vertex code"));
        g.fillRect(across(top - beside), 14, across(beside), high);
        if (across(beside) > 70) tag(g, shorter(g, "code, stacks …", across(beside) - 8), across(top - beside) + 4, 30, "ink");
      }
      if (current >= 0 && parts[current]) { g.strokeStyle = colour("focus"); g.lineWidth = 2; g.strokeRect(across(parts[current].from), 12, Math.max(3, across(parts[current].to - parts[current].from)), high + 4); }
      if (top > limit) { g.fillStyle = colour("bad"); g.fillRect(across(limit) - 1, 8, 2, high + 12); }
      g.fillStyle = colour("soft");
      g.fillText("0", 0, 73);
      for (const [words, at] of /** @type {[string, number][]} */ (top > limit ? [["limit " + bytes(limit), limit], [bytes(top), top]] : [[bytes(limit), limit]])) {
        g.fillText(words, Math.min(width, across(at)) - g.measureText(words).width, 73);
      }
    },
    read(x, _, width) {
      const top = topOf(seen), at = (x * top) / width, part = partAt(at);
      if (part) return text(part);
      return at >= top - beside ? `${bytes(beside)} of code, stacks and the state of vertices: their addresses are not modelled` : `free, ${bytes(top - beside - placed.at(seen.moment()).reduce((most, { to }) => Math.max(most, to), 0))} beyond the last tensor`;
    },
    pick(x, _, width) {
      const part = partAt((x * topOf(seen)) / width);
      if (part && part.tensor >= 0) seen.choose(part.tensor);
    },
    keys(key) {
      const parts = placed.at(seen.moment()), step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[key];
      if (step !== undefined && parts.length) {
        current = current < 0 ? Math.max(0, parts.findIndex(({ tensor }) => tensor >= 0 && tensor === seen.chosen())) : Math.max(0, Math.min(parts.length - 1, current + step));
        say(text(parts[current]));
      } else if (key === "Enter" && parts[current]?.tensor >= 0) seen.choose(parts[current].tensor);
      else return false;
      return true;
    },
    rows: () => table([{ name: "address", value: (p) => plain(p.from) }, { name: "bytes", value: (p) => bytes(p.to - p.from) },
      { name: "tensor", value: (p) => (p.tensor < 0 ? "gap" : tensors.name(p.tensor)), words: true }, { name: "kind", value: (p) => (p.tensor < 0 ? "" : tensors.categories.at(p.tensor)), words: true },
      { name: "from", value: (p) => (p.tensor < 0 ? "" : tensors.where(p.tensor)), words: true }], placed.at(seen.moment()).slice(0, 2000), "Addresses"),
  });
}

/** @param {SeenAddresses} seen */
export function addressMap(seen) {
  const { placed, tensors } = seen;
  const moments = placed.moments, byKind = new RowsBy(Int32Array.from(placed.rows, (i) => tensors.categories.index[placed.tensor[i]]));
  const momentAt = (/** @type {number} */ y, /** @type {number} */ height) => Math.max(0, Math.min(moments - 1, Math.floor((y * moments) / height)));
  const at = (/** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ width, /** @type {number} */ height) => {
    const moment = momentAt(y, height), part = placed.at(moment).find(({ from, to }) => from <= (x * topOf(seen)) / width && (x * topOf(seen)) / width < to);
    return { moment, part };
  };
  return new Chart({
    height: 230,
    label: `Addresses on tile ${placed.tile} over the program: across the address, down the moments; what is empty is free`,
    draw(g, width, height) {
      const top = topOf(seen), kinds = tensors.categories.distinct;
      g.fillStyle = colour("idle");
      g.fillRect(0, 0, width, height);
      // There may be 100,000 of them: each kind is a picture of whole pixels, which is hatched at once.
      const image = new ImageData(width, height), pixels = new Uint32Array(image.data.buffer), sheet = new OffscreenCanvas(width, height);
      const mask = /** @type {OffscreenCanvasRenderingContext2D} */ (sheet.getContext("2d"));
      g.imageSmoothingEnabled = false;
      kinds.forEach((name, kind) => {
        const members = byKind.of(kind);
        if (!members.length) return;
        pixels.fill(0);
        let before = -1; // where the last narrow one is
        for (const at of members) {
          const i = placed.rows[at], x = (placed.address[i] * width) / top, y = (placed.first[i] * height) / moments;
          const w = (placed.bytes[i] * width) / top, high = ((placed.last[i] + 1 - placed.first[i]) * height) / moments;
          const left = Math.floor(x), right = Math.max(left + 1, Math.round(x + w) - (w > 3 ? 1 : 0));
          const first = Math.floor(y), stop = Math.min(height, Math.max(first + 1, Math.round(y + high) - (high > 4 ? 1 : 0)));
          const narrow = right - left === 1 ? (first * width + left) * (height + 1) + stop : -1;
          if (narrow >= 0 && narrow === before) continue; // on the same pixels as the one before
          before = narrow;
          for (let row = first; row < stop; row++) pixels.fill(0xffffffff, row * width + left, row * width + Math.min(width, right));
        }
        mask.putImageData(image, 0, 0);
        mask.globalCompositeOperation = "source-in";
        mask.fillStyle = fill(g, ...look(name));
        mask.fillRect(0, 0, width, height);
        g.drawImage(sheet, 0, 0);
      });
      const chosen = seen.chosen();
      g.strokeStyle = colour("ink");
      g.lineWidth = 2;
      for (const i of placed.rows) {
        if (placed.tensor[i] !== chosen) continue;
        g.strokeRect((placed.address[i] * width) / top, (placed.first[i] * height) / moments, Math.max(3, (placed.bytes[i] * width) / top), Math.max(3, ((placed.last[i] + 1 - placed.first[i]) * height) / moments));
      }
      const y = ((seen.moment() + 0.5) * height) / moments;
      g.fillStyle = colour("paper");
      g.fillRect(0, y - 2, width, 4);
      g.fillStyle = colour("ink");
      g.fillRect(0, y - 1, width, 2);
      const words = `moment ${seen.moment()}`;
      tag(g, words, width - g.measureText(words).width - 6, Math.max(0, Math.min(height - 14, y > height / 2 ? y - 16 : y + 3)), "ink");
    },
    read(x, y, width, height) {
      const { moment, part } = at(x, y, width, height);
      return `moment ${moment}: ` + (!part ? "free" : part.tensor < 0 ? `a gap of ${bytes(part.to - part.from)}` : `${tensors.name(part.tensor)}, ${bytes(part.to - part.from)}\n  ${tensors.categories.at(part.tensor)}, live ${tensors.life(part.tensor)} ${tensors.where(part.tensor)}`);
    },
    pick(x, y, width, height) {
      const { moment, part } = at(x, y, width, height);
      if (part && part.tensor >= 0) seen.choose(part.tensor);
      seen.at(moment);
    },
    keys(key) {
      const page = Math.max(1, Math.round(moments / 20)), step = { ArrowUp: -1, ArrowDown: 1, PageUp: -page, PageDown: page, Home: -Infinity, End: Infinity }[key];
      if (step === undefined) return false;
      const moment = Math.max(0, Math.min(moments - 1, seen.moment() + step));
      seen.at(moment);
      const parts = placed.at(moment), gaps = parts.filter(({ tensor }) => tensor < 0);
      say(`moment ${moment}: ${parts.length - gaps.length} storages, ${gaps.length} gaps of ${bytes(gaps.reduce((sum, { from, to }) => sum + to - from, 0))}`);
      return true;
    },
    rows: () => table([{ name: "tensor", value: (i) => tensors.name(placed.tensor[i]), words: true }, { name: "address", value: (i) => plain(placed.address[i]) }, { name: "bytes", value: (i) => bytes(placed.bytes[i]) },
      { name: "first moment", value: (i) => placed.first[i] }, { name: "last", value: (i) => placed.last[i] }], [...placed.rows].sort((a, b) => placed.bytes[b] - placed.bytes[a]).slice(0, 2000), "Placements, largest first"),
  });
}

/** @param {CanvasRenderingContext2D} g @param {number} x @param {number} y @param {number} w @param {number} h */
function gap(g, x, y, w, h) {
  g.strokeStyle = colour("soft");
  g.lineWidth = 1;
  if (w > 4) g.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
  g.beginPath();
  g.moveTo(x, y + h); g.lineTo(x + w, y); g.moveTo(x, y); g.lineTo(x + w, y + h);
  g.stroke();
}

/** Text that fits into `room` pixels. @param {CanvasRenderingContext2D} g @param {string} text @param {number} room */
export function shorter(g, text, room) {
  let shown = text;
  while (shown.length > 1 && g.measureText(shown).width > room) shown = shown.slice(0, Math.max(1, Math.min(shown.length - 2, Math.floor((shown.length * room) / g.measureText(shown).width)))) + "…";
  return shown;
}

