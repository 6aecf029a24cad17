// A canvas that is drawn by a function, read by mouse and keyboard, and shown as a table to whoever wants one.

import { make, say } from "./dom.js";

/** Colours that were asked for: a style that is computed anew takes longer than what is drawn with it. @type {Map<string, string>} */
const colours = new Map();

/** A colour of the style sheet. @param {string} name */
export function colour(name) {
  let found = colours.get(name);
  if (found === undefined) {
    found = getComputedStyle(document.documentElement).getPropertyValue("--" + name.replaceAll(" ", "-")).trim();
    colours.set(name, found);
  }
  return found;
}

const HATCHES = ["", "/", "\\", ".", "x", "-", "|", "+", "o"];
/** @type {Map<string, CanvasPattern>} */
const patterns = new Map();

/**
 * What a category is filled with: its colour, hatched so that it can be told without colours. `hatch` is its place.
 * @param {CanvasRenderingContext2D} g @param {string} name of a colour @param {number} hatch
 * @returns {CanvasPattern | string}
 */
export function fill(g, name, hatch) {
  const hue = colour(name), sign = HATCHES[hatch % HATCHES.length];
  if (!sign) return hue;
  const key = hue + sign + colour("paper");
  let pattern = patterns.get(key);
  if (!pattern) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const t = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
    t.fillStyle = hue;
    t.fillRect(0, 0, 8, 8);
    t.strokeStyle = t.fillStyle = colour("hatch");
    t.beginPath();
    if ("/x".includes(sign)) { t.moveTo(-2, 10); t.lineTo(10, -2); t.moveTo(-2, 2); t.lineTo(2, -2); t.moveTo(6, 10); t.lineTo(10, 6); }
    if ("\\x".includes(sign)) { t.moveTo(-2, -2); t.lineTo(10, 10); t.moveTo(6, -2); t.lineTo(10, 2); t.moveTo(-2, 6); t.lineTo(2, 10); }
    if ("-+".includes(sign)) { t.moveTo(0, 4); t.lineTo(8, 4); }
    if ("|+".includes(sign)) { t.moveTo(4, 0); t.lineTo(4, 8); }
    t.stroke();
    if (sign === ".") t.fillRect(3, 3, 2, 2);
    if (sign === "o") { t.beginPath(); t.arc(4, 4, 2, 0, 7); t.stroke(); }
    pattern = /** @type {CanvasPattern} */ (g.createPattern(tile, "repeat"));
    patterns.set(key, pattern);
  }
  return pattern;
}

/** Forget colours and hatches: the theme has changed. */
export function forgetFills() {
  colours.clear();
  patterns.clear();
}

/**
 * @typedef {{
 *   height: number, label: string, step?: number,
 *   draw: (g: CanvasRenderingContext2D, width: number, height: number) => void,
 *   read?: (x: number, y: number, width: number, height: number) => string,
 *   pick?: (x: number, y: number, width: number, height: number) => void,
 *   drag?: (from: number, to: number, width: number, done: boolean) => void,
 *   zoom?: (x: number, factor: number, width: number, y?: number) => void,
 *   pan?: (pixels: number, width: number, down?: number) => void,
 *   keys?: (key: string, x: number, width: number) => boolean,
 *   rows?: () => Node,
 *   level?: (height: number) => number,
 * }} ChartOptions
 * `read` says what is at a place, `pick` selects it (click, Enter), `drag` a range, `rows` makes the table, `level` is
 * how far down the keyboard reads (half way, where there is none), `step` how far, in pixels, the arrows up and down go
 * from there. `keys` comes before what every chart does with a key; it answers whether it took it, and says what it did.
 */

/** A chart: `node` to be put on a page, `repaint()` when what it draws has changed. */
export class Chart {
  /** @param {ChartOptions} options */
  constructor(options) {
    this.options = options;
    /** @type {number | null} */
    this.probe = null;
    /** @type {number | null} */
    this.probeY = null;
    this.pending = false;
    this.canvas = /** @type {HTMLCanvasElement} */ (make("canvas", { role: "img", "aria-label": options.label, tabindex: options.read ? 0 : null }));
    this.canvas.style.height = options.height + "px";
    this.tip = make("div", { class: "tip", hidden: true });
    this.node = make("figure", { class: "chart" }, this.canvas, this.tip, options.rows ? this.#asTable(options.rows) : null);
    new ResizeObserver(() => this.repaint()).observe(this.canvas);
    if (options.read || options.zoom || options.drag) this.#listen();
  }

  /** Draw anew before the next frame, once however often it is asked for. */
  repaint() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; this.#paint(); });
  }

  #paint() {
    const { height, draw } = this.options;
    const scale = devicePixelRatio || 1, width = this.canvas.clientWidth;
    if (!width) return;
    const wide = Math.round(width * scale), high = Math.round(height * scale);
    if (this.canvas.width !== wide || this.canvas.height !== high) { this.canvas.width = wide; this.canvas.height = high; }
    const g = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    g.setTransform(scale, 0, 0, scale, 0, 0);
    g.clearRect(0, 0, width, height);
    g.font = "11px system-ui, sans-serif";
    draw(g, width, height);
    if (this.probe !== null) { g.fillStyle = colour("ink"); g.fillRect(this.probe, 0, 1, height); }
    if (this.probe !== null && this.probeY !== null) g.fillRect(this.probe - 6, this.probeY, 13, 1);
  }

  /** Make it as tall as that. @param {number} height */
  stretch(height) {
    this.options.height = height;
    this.canvas.style.height = height + "px";
    this.repaint();
  }

  /** @param {() => Node} rows built when it is opened */
  #asTable(rows) {
    const box = /** @type {HTMLDetailsElement} */ (make("details", { class: "as-table" }, make("summary", null, "As a table")));
    box.addEventListener("toggle", () => { if (box.open) box.append(rows()); else box.lastChild?.remove(); });
    return box;
  }

  #listen() {
    const { canvas, options } = this;
    const level = () => this.probeY ?? options.level?.(options.height) ?? (options.step ? options.step / 2 : options.height / 2);
    const size = () => /** @type {[number, number]} */ ([canvas.clientWidth, options.height]);
    /** @type {number | null} */
    let pressed = null;
    let moved = false;
    canvas.addEventListener("pointerdown", (e) => { pressed = e.offsetX; moved = false; canvas.setPointerCapture(e.pointerId); });
    canvas.addEventListener("pointermove", (e) => {
      if (pressed !== null && Math.abs(e.offsetX - pressed) > 3) moved = true;
      if (pressed !== null && moved && options.pan && (e.shiftKey || !options.drag)) { options.pan(e.movementX, size()[0], e.movementY); return; }
      if (pressed !== null && moved && options.drag) options.drag(Math.min(pressed, e.offsetX), Math.max(pressed, e.offsetX), size()[0], false);
      this.#tell(e.offsetX, e.offsetY);
    });
    canvas.addEventListener("pointerup", (e) => {
      if (pressed !== null && moved && options.drag && !e.shiftKey) options.drag(Math.min(pressed, e.offsetX), Math.max(pressed, e.offsetX), size()[0], true);
      else if (pressed !== null && !moved) options.pick?.(e.offsetX, e.offsetY, ...size());
      pressed = null;
    });
    canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    canvas.addEventListener("blur", () => { this.tip.hidden = true; this.probe = this.probeY = null; this.repaint(); });
    if (options.zoom || options.pan) {
      canvas.addEventListener("wheel", (e) => {
        if (e.deltaX && options.pan && Math.abs(e.deltaX) > Math.abs(e.deltaY)) { e.preventDefault(); options.pan(-e.deltaX, size()[0]); }
        else if (options.zoom && (e.ctrlKey || document.activeElement === canvas)) { e.preventDefault(); options.zoom(e.offsetX, Math.exp(-e.deltaY / 300), size()[0], e.offsetY); }
      }, { passive: false });
    }
    canvas.addEventListener("keydown", (e) => {
      if (e.metaKey || e.ctrlKey || e.altKey) return;
      const [width, height] = size();
      const at = this.probe ?? width / 2;
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -width / 20, PageDown: width / 20, Home: -width, End: width }[e.key];
      if (options.keys?.(e.key, at, width)) {
        e.preventDefault();
        e.stopPropagation();
        this.repaint();
        return;
      }
      if (step !== undefined) this.probe = Math.max(0, Math.min(width - 1, at + step * (e.shiftKey && Math.abs(step) === 1 ? 10 : 1)));
      else if (options.step && (e.key === "ArrowUp" || e.key === "ArrowDown")) {
        this.probeY = Math.max(0, Math.min(height - 1, level() + (e.key === "ArrowUp" ? -options.step : options.step)));
        this.probe = at;
      } else if (e.key === "Enter" && options.pick) options.pick(at, level(), width, height);
      else if (options.zoom && (e.key === "w" || e.key === "+")) options.zoom(at, 1.5, width);
      else if (options.zoom && (e.key === "s" || e.key === "-")) options.zoom(at, 1 / 1.5, width);
      else if (options.pan && e.key === "a") options.pan(width / 8, width);
      else if (options.pan && e.key === "d") options.pan(-width / 8, width);
      else return;
      e.preventDefault();
      e.stopPropagation();
      this.repaint();
      if (this.probe !== null) say(this.#tell(this.probe, level()));
    });
  }

  /** @param {number} x @param {number} y */
  #tell(x, y) {
    const { read, height } = this.options, width = this.canvas.clientWidth;
    const text = read?.(x, y, width, height) ?? "";
    this.tip.hidden = !text;
    this.tip.textContent = text;
    this.tip.style.left = Math.max(0, Math.min(x + 12, width - this.tip.offsetWidth - 4)) + "px";
    this.tip.style.top = Math.min(y + 14, height) + "px";
    return text;
  }
}

/** A dashed line with words, and a rim, to be seen over any hue: across `width` at `y`, or `upright` at `width` down to `y`.
 * @param {CanvasRenderingContext2D} g @param {number} width @param {number} y @param {string} text @param {boolean} [upright] */
export function limitLine(g, width, y, text, upright = false) {
  for (const [hue, thick, dash] of /** @type {[string, number, number[]][]} */ ([["paper", 4, []], ["bad", 2, [6, 4]]])) {
    g.strokeStyle = colour(hue);
    g.lineWidth = thick;
    g.setLineDash(dash);
    g.beginPath();
    g.moveTo(upright ? width : 0, upright ? 0 : y);
    g.lineTo(width, y);
    g.stroke();
  }
  g.setLineDash([]);
  tag(g, text, upright ? Math.max(2, width - g.measureText(text).width - 8) : 4, upright ? 1 : Math.max(0, y - 16), "bad");
}

/** Words on a plate. @param {CanvasRenderingContext2D} g @param {string} text @param {number} x @param {number} y @param {string} hue */
export function tag(g, text, x, y, hue) {
  g.fillStyle = colour("paper");
  g.fillRect(x - 2, y, g.measureText(text).width + 6, 13);
  g.fillStyle = colour(hue);
  g.fillText(text, x, y + 10);
}

/** The items of `count` that fall on pixel `x` of `width`: first, and after the last; at least one.
 * @param {number} x @param {number} width @param {number} count @returns {[number, number]} */
export function onPixel(x, width, count) {
  const first = Math.min(count - 1, Math.floor((x * count) / width));
  return [first, Math.max(first + 1, Math.floor(((x + 1) * count) / width))];
}

/** @param {[string, string, number][]} entries name, colour and hatch */
export function legend(entries) {
  return make("p", { class: "key" }, ...entries.map(([name, hue, hatch]) => {
    const box = /** @type {HTMLCanvasElement} */ (make("canvas", { width: 14, height: 14, "aria-hidden": "true" }));
    requestAnimationFrame(() => {
      const g = /** @type {CanvasRenderingContext2D} */ (box.getContext("2d"));
      g.fillStyle = fill(g, hue, hatch);
      g.fillRect(0, 0, 14, 14);
    });
    return make("span", null, box, name);
  }));
}
