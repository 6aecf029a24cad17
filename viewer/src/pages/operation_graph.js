// The flow of data between operations, drawn: to be moved, zoomed, folded, and walked with the keyboard.

import { Chart, colour } from "../chart.js";
import { make, note, problem, say, table } from "../dom.js";
import { bytes, many, plain } from "../format.js";
import { boxCount, graphOf, inOrder, laidOut, MOST_BOXES, opened, TALL, WIDE } from "../graph.js";

const HEIGHT = 460, SHOWN = 60, ROWS = 500;

/**
 * @typedef {import("../optree.js").Tree} Tree
 * @typedef {import("../packet.js").Table} Table
 */

export class OperationGraph {
  /**
   * @param {{tree: Tree, tensors: Table, flow: Table, moments: Table, text: (node: number) => string, chosen: () => number, picked: (row: number) => void,
   *   open: Set<number> | null, folded: (open: Set<number>) => void}} options `open`: groups, or null for what suits; `chosen`: the row of an operation
   */
  constructor(options) {
    this.options = options;
    this.open = options.open ?? opened(options.tree, SHOWN);
    this.order = inOrder(options.tree.costs.count, options.moments);
    /** Where the middle of the canvas is, and pixels a unit. */
    this.eye = { x: 0, y: 0, scale: 1 };
    this.at = -1;
    /** @type {import("../graph.js").Graph | undefined} */
    this.graph = undefined;
    /** @type {ReturnType<typeof laidOut> | undefined} */
    this.place = undefined;
    this.status = make("p", { class: "note", "aria-live": "polite" });
    this.problem = make("div");
    this.chart = new Chart({
      height: HEIGHT, label: "Flow of data between operations: arrows from who makes a tensor to who reads it",
      draw: (g, width, height) => this.#draw(g, width, height),
      read: (x, y, width) => { const box = this.#boxAt(x, y, width); return box < 0 ? "" : this.#words(box); },
      pick: (x, y, width) => { const box = this.#boxAt(x, y, width); if (box >= 0) this.#press(box); },
      pan: (dx, _, dy) => { this.eye.x -= dx / this.eye.scale; this.eye.y -= (dy ?? 0) / this.eye.scale; this.chart.repaint(); },
      zoom: (x, factor, width, y) => {
        const { eye } = this, scale = Math.min(3, Math.max(0.02, eye.scale * factor)), [dx, dy] = [x - width / 2, (y ?? HEIGHT / 2) - HEIGHT / 2];
        eye.x += dx / eye.scale - dx / scale;
        eye.y += dy / eye.scale - dy / scale;
        eye.scale = scale;
        this.chart.repaint();
      },
      keys: (key) => this.#key(key),
      rows: () => this.#table(),
    });
    this.node = make("div", { class: "graph" },
      make("div", { class: "tools" }, make("button", { onclick: () => this.#fold(null) }, "All layers"), make("button", { onclick: () => this.#fold(new Set()) }, "Fold all"),
        make("button", { onclick: () => this.#fold(opened(options.tree, SHOWN)) }, "Fold to fit"), make("button", { onclick: () => { this.#fit(); this.chart.repaint(); } }, "Whole graph")),
      this.problem, this.chart.node, this.status,
      note("Drag to move, Ctrl and the wheel (or w and s) to zoom. A click, or Enter, unfolds a layer or chooses an operation; f folds what is around; arrows walk along the data."));
    this.#reveal(options.chosen());
    this.#layout();
  }

  /** @param {Set<number> | null} open null: all */
  #fold(open) {
    this.open = open ?? new Set(Array.from({ length: this.options.tree.groups }, (_, g) => g));
    this.at = -1;
    this.options.folded(this.open);
    this.#layout();
  }

  /** Opens what is around an operation. @param {number} row */
  #reveal(row) {
    if (row < 0) return;
    const { tree } = this.options, item = tree.itemRow.indexOf(row);
    for (let group = item < 0 ? -1 : tree.itemGroup[item]; group >= 0; group = tree.parent[group]) this.open.add(group);
  }

  /** Follows the choice of an operation elsewhere. */
  follow() {
    const row = this.options.chosen();
    if (row >= 0 && (this.at < 0 || this.options.tree.row(this.graph?.node[this.at] ?? -1) !== row)) {
      const before = this.open.size;
      this.#reveal(row);
      if (this.open.size !== before) this.#layout();
      else this.#look(row);
    }
    this.chart.repaint();
  }

  #layout() {
    const { tree, tensors, flow } = this.options;
    this.problem.replaceChildren();
    try {
      const boxes = boxCount(tree, this.open);
      if (boxes > MOST_BOXES) throw new Error(`The graph would have ${plain(boxes)} boxes, more than ${plain(MOST_BOXES)} can be drawn: fold some layers.`);
      this.graph = graphOf(tree, tensors, flow, this.order, this.open);
      this.place = laidOut(this.graph);
      this.status.textContent = `${many(this.graph.node.length, "box").replace("boxs", "boxes")}, ${many(this.graph.from.length, "arrow")}` + (this.graph.alone ? `; ${plain(this.graph.alone)} without an arrow left out` : "");
      this.#fit();
      this.#look(this.options.chosen());
    } catch (error) {
      this.graph = this.place = undefined;
      this.problem.replaceChildren(problem(error));
      this.status.textContent = "";
    }
    this.chart.repaint();
  }

  /** The whole graph in sight, unless boxes became too small to read: then its beginning. */
  #fit() {
    const { place } = this;
    if (!place?.x.length) return;
    let [left, right, bottom] = [Infinity, -Infinity, 0];
    for (let i = 0; i < place.x.length; i++) { left = Math.min(left, place.x[i]); right = Math.max(right, place.x[i]); bottom = Math.max(bottom, place.y[i]); }
    const width = this.chart.canvas.clientWidth || 800;
    const scale = Math.min(1.2, width / (right - left + WIDE + 40), HEIGHT / (bottom + TALL + 40));
    this.eye = scale > 0.45 ? { x: (left + right) / 2, y: bottom / 2, scale } : { x: place.x[0], y: HEIGHT / 2 / 0.8 - TALL, scale: 0.8 };
  }

  /** @param {number} row brings an operation into the middle */
  #look(row) {
    if (row < 0 || !this.graph || !this.place) return;
    const item = this.options.tree.itemRow.indexOf(row), box = this.graph.node.indexOf(this.options.tree.groups + item);
    if (item < 0 || box < 0) return;
    this.at = box;
    this.eye = { x: this.place.x[box], y: this.place.y[box], scale: Math.max(0.7, this.eye.scale) };
  }

  /** @param {number} x @param {number} y @param {number} width */
  #boxAt(x, y, width) {
    const { graph, place, eye } = this;
    if (!graph || !place) return -1;
    const [gx, gy] = [(x - width / 2) / eye.scale + eye.x, (y - HEIGHT / 2) / eye.scale + eye.y];
    for (let i = 0; i < place.x.length; i++) if (Math.abs(place.x[i] - gx) <= WIDE / 2 && Math.abs(place.y[i] - gy) <= TALL / 2) return i;
    return -1;
  }

  /** @param {number} box */
  #words(box) {
    const { graph } = this, { tree, text } = this.options;
    if (!graph) return "";
    let [into, out, bytesIn, bytesOut] = [0, 0, 0, 0];
    for (let e = 0; e < graph.from.length; e++) {
      if (graph.to[e] === box) { into++; bytesIn += graph.bytes[e]; }
      if (graph.from[e] === box) { out++; bytesOut += graph.bytes[e]; }
    }
    const node = graph.node[box];
    return `${text(node)}${tree.isGroup(node) ? `, folded: ${many(graph.size[box], "operation")}` : ""}\nreads from ${into} (${bytes(bytesIn)}), is read by ${out} (${bytes(bytesOut)})`;
  }

  /** @param {number} box */
  #press(box) {
    const { tree } = this.options, node = this.graph?.node[box] ?? -1;
    this.at = box;
    if (node < 0) return;
    if (!tree.isGroup(node)) { this.options.picked(tree.row(node)); this.chart.repaint(); return; }
    const eye = { ...this.eye };
    this.open.add(node);
    this.options.folded(this.open);
    this.at = -1;
    this.#layout();
    const first = this.graph?.node.findIndex((each) => tree.above(each) === node) ?? -1;
    if (first >= 0 && this.place) { this.at = first; this.eye = { x: this.place.x[first], y: this.place.y[first], scale: Math.max(0.6, eye.scale) }; }
  }

  /** Folds the layer that a box is in. */
  #foldAround() {
    const { tree } = this.options, node = this.graph?.node[this.at] ?? -1, above = node < 0 ? -1 : tree.above(node);
    if (above < 0) return;
    this.open.delete(above);
    this.options.folded(this.open);
    this.#layout();
    const box = this.graph?.node.indexOf(above) ?? -1;
    if (box >= 0 && this.place) { this.at = box; this.eye.x = this.place.x[box]; this.eye.y = this.place.y[box]; }
  }

  /** @param {string} key */
  #key(key) {
    const { graph, place } = this;
    if (!graph || !place || !graph.node.length) return false;
    if (key === "Enter" && this.at >= 0) this.#press(this.at);
    else if (key === "f" && this.at >= 0) this.#foldAround();
    else if (/^Arrow(Up|Down|Left|Right)$/.test(key)) {
      let next = this.at < 0 ? 0 : -1;
      if (next < 0 && (key === "ArrowLeft" || key === "ArrowRight")) {
        const row = place.layers[place.layer[this.at]];
        next = row[row.indexOf(this.at) + (key === "ArrowRight" ? 1 : -1)] ?? -1;
      } else if (next < 0) {
        let nearest = Infinity;
        for (let e = 0; e < graph.from.length; e++) {
          const [here, there] = key === "ArrowDown" ? [graph.from[e], graph.to[e]] : [graph.to[e], graph.from[e]];
          if (here !== this.at || graph.back[e]) continue;
          const far = Math.abs(place.layer[there] - place.layer[here]) * 1e6 + Math.abs(place.x[there] - place.x[here]);
          if (far < nearest) [nearest, next] = [far, there];
        }
      }
      if (next < 0) { say("nothing there"); return true; }
      this.at = next;
      this.eye.x = place.x[next];
      this.eye.y = place.y[next];
    } else return false;
    if (this.at >= 0) say(this.#words(this.at));
    this.chart.repaint();
    return true;
  }

  /** @param {CanvasRenderingContext2D} g @param {number} width @param {number} height */
  #draw(g, width, height) {
    const { graph, place, eye } = this, { tree, text, chosen } = this.options;
    if (!graph || !place) return;
    const scale = eye.scale, px = (/** @type {number} */ x) => (x - eye.x) * scale + width / 2, py = (/** @type {number} */ y) => (y - eye.y) * scale + height / 2;
    const [ink, soft, focus, panel, group] = ["ink", "soft", "focus", "panel", "compute"].map(colour);
    const arrow = (/** @type {number} */ e, /** @type {boolean} */ strong) => {
      const [a, b] = [graph.from[e], graph.to[e]];
      const [x1, y1, x2, y2] = [px(place.x[a]), py(place.y[a] + TALL / 2), px(place.x[b]), py(place.y[b] - TALL / 2)];
      if (Math.max(y1, y2) < 0 || Math.min(y1, y2) > height || Math.max(x1, x2) < 0 || Math.min(x1, x2) > width) return;
      const bend = Math.min(60 * scale, Math.abs(y2 - y1) / 2 + 8 * scale);
      g.beginPath();
      g.setLineDash(graph.back[e] ? [4, 3] : []);
      g.moveTo(x1, y1);
      g.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2);
      if (scale > 0.3 || strong) { g.moveTo(x2 - 3.5 * scale, y2 - 6 * scale); g.lineTo(x2, y2); g.lineTo(x2 + 3.5 * scale, y2 - 6 * scale); }
      g.stroke();
    };
    g.lineWidth = Math.max(0.5, Math.min(1.5, scale));
    g.strokeStyle = soft;
    g.globalAlpha = 0.6;
    for (let e = 0; e < graph.from.length; e++) if (graph.from[e] !== this.at && graph.to[e] !== this.at) arrow(e, false);
    g.globalAlpha = 1;
    g.strokeStyle = focus;
    for (let e = 0; this.at >= 0 && e < graph.from.length; e++) if (graph.from[e] === this.at || graph.to[e] === this.at) arrow(e, true);
    g.setLineDash([]);
    g.textBaseline = "middle";
    g.font = `${Math.max(8, Math.min(12, 12 * scale))}px system-ui, sans-serif`;
    const picked = chosen();
    for (let i = 0; i < place.x.length; i++) {
      const [x, y, wide, tall] = [px(place.x[i] - WIDE / 2), py(place.y[i] - TALL / 2), WIDE * scale, TALL * scale];
      if (x > width || y > height || x + wide < 0 || y + tall < 0) continue;
      const node = graph.node[i], folded = tree.isGroup(node);
      g.fillStyle = panel;
      g.fillRect(x, y, wide, tall);
      if (folded) { g.globalAlpha = 0.3; g.fillStyle = group; g.fillRect(x, y, wide, tall); g.globalAlpha = 1; }
      g.strokeStyle = i === this.at || (!folded && tree.row(node) === picked) ? focus : soft;
      g.lineWidth = g.strokeStyle === focus ? 2.5 : 1;
      g.strokeRect(x, y, wide, tall);
      if (folded && scale > 0.3) g.strokeRect(x + 3 * scale, y + tall, wide - 6 * scale, 3 * scale);
      if (scale < 0.45) continue;
      g.save();
      g.beginPath();
      g.rect(x, y, wide - 3, tall);
      g.clip();
      g.fillStyle = ink;
      g.fillText((folded ? "▸ " : "") + text(node), x + 5 * scale, y + tall / 2);
      g.restore();
    }
    g.textBaseline = "alphabetic";
  }

  #table() {
    const { graph } = this, { text } = this.options;
    if (!graph) return note("");
    const order = Array.from(graph.from.keys()).sort((a, b) => graph.bytes[b] - graph.bytes[a]).slice(0, ROWS);
    return make("div", null, table([
      { name: "from", value: (e) => text(graph.node[graph.from[e]]), words: true }, { name: "to", value: (e) => text(graph.node[graph.to[e]]), words: true },
      { name: "tensors", value: (e) => plain(graph.tensors[e]) }, { name: "bytes", value: (e) => bytes(graph.bytes[e]) }], order, "Arrows"),
    graph.from.length > ROWS ? note(`The ${ROWS} largest of ${plain(graph.from.length)}.`) : null);
  }
}
