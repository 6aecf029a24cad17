// The layers of a program as a flame: each as wide as its share of the cycles, bytes or flops, its parts below it.

import { Chart, colour } from "./chart.js";
import { make, table } from "./dom.js";
import { percent } from "./format.js";

const ROW = 21; // pixels
const HUES = ["compute", "exchange", "host", "links", "overhead", "bubble"];
const DEEPEST = 8;

/**
 * @typedef {import("./optree.js").Tree} Tree
 * @typedef {import("./optree.js").Measure} Measure
 * @typedef {{node: number, x: number, width: number, level: number, count: number}} Block `node` -1: the whole, -2: several too thin to draw
 */

/**
 * Blocks of the whole width 1, from the top down: those above `root`, it, and all under it that are `least` wide.
 * @param {Tree} tree by layer @param {Measure} measure @param {number} root a group, or -1 @param {number} least @returns {Block[]}
 */
export function blocks(tree, measure, root, least) {
  /** @type {Block[]} */
  const made = [];
  const path = [];
  for (let node = root; node >= 0; node = tree.above(node)) path.unshift(node);
  made.push({ node: -1, x: 0, width: 1, level: 0, count: 1 });
  path.forEach((node, i) => made.push({ node, x: 0, width: 1, level: i + 1, count: 1 }));
  const whole = root < 0 ? total(tree, measure) : tree.value(root, measure);
  if (!(whole > 0)) return made;
  /** @type {[number, number, number][]} */
  const stack = [[root, 0, path.length + 1]];
  while (stack.length) {
    const [parent, left, level] = /** @type {[number, number, number]} */ (stack.pop());
    let x = left, thin = 0, from = left;
    const flush = () => { if (thin && x - from >= least) made.push({ node: -2, x: from, width: x - from, level, count: thin }); thin = 0; };
    for (const node of tree.children(parent)) {
      const width = tree.value(node, measure) / whole, alike = tree.isGroup(node) ? 1 : tree.each(node);
      if (width >= least && alike === 1) {
        flush();
        made.push({ node, x, width, level, count: 1 });
        if (tree.isGroup(node) && level + 1 < DEEPEST) stack.push([node, x, level + 1]);
        x += width;
        from = x;
      } else if (width > 0) {
        if (!thin) from = x;
        thin += alike;
        x += width;
        if (x - from >= 2 * least) flush();
      }
    }
    flush();
  }
  return made;
}

/** @param {Tree} tree @param {Measure} measure */
function total(tree, measure) {
  let sum = 0;
  for (const node of tree.children(-1)) sum += tree.value(node, measure) || 0;
  return sum;
}

/**
 * @param {{tree: Tree, measure: () => Measure, root: () => number, show: (value: number) => string, text: (node: number) => string,
 *   picked: (node: number) => void, chosen: () => number}} options `picked` gets -1 for the whole; `chosen` is the row of an operation, or -1
 */
export function flame({ tree, measure, root, show, text, picked, chosen }) {
  /** @type {Block[]} */
  let drawn = [], drawnFor = "";
  const value = (/** @type {number} */ node) => (node < 0 ? total(tree, measure()) : tree.value(node, measure()));
  /** A hue for each name, numbers apart: what repeats looks alike. */
  const hues = new Map();
  const hue = (/** @type {number} */ node) => {
    const name = tree.isGroup(node) ? tree.label[node].replace(/\d+/g, "") : tree.costs.table.words("name").at(tree.row(node));
    if (!hues.has(name)) hues.set(name, HUES[hues.size % HUES.length]);
    return hues.get(name);
  };
  const at = (/** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ width) => {
    const level = Math.floor(y / ROW), place = x / width;
    return drawn.find((block) => block.level === level && block.x <= place && place < block.x + block.width);
  };
  const words = (/** @type {Block} */ block) => {
    if (block.node === -2) return `${block.count} too thin to draw, together ${percent(block.width, 1)} of the width: zoom in`;
    const name = block.node < 0 ? "the whole program" : text(block.node);
    return `${name}\n${show(value(block.node))}, ${percent(value(block.node), total(tree, measure()))} of the ${measure()}`;
  };
  const chart = new Chart({
    height: ROW * 5, step: ROW, label: "Layers by their share: a flame from the program at the top to its operations",
    draw(g, width) {
      const now = [measure(), root(), width].join();
      if (now !== drawnFor) [drawn, drawnFor] = [blocks(tree, measure(), root(), 1.5 / width), now];
      const deep = Math.max(...drawn.map((block) => block.level)) + 1;
      if (chart.options.height !== deep * ROW) { chart.stretch(deep * ROW); return; }
      const row = chosen(), ink = colour("ink"), idle = colour("idle"), focus = colour("focus");
      g.textBaseline = "middle";
      for (const block of drawn) {
        const [x, y, wide] = [block.x * width, block.level * ROW, Math.max(1, block.width * width - 1)];
        g.fillStyle = block.node < 0 ? idle : colour(hue(block.node));
        g.globalAlpha = block.node < 0 ? 1 : tree.isGroup(block.node) ? 0.45 : 0.28;
        g.fillRect(x, y, wide, ROW - 1);
        g.globalAlpha = 1;
        if (block.node >= 0 && row >= 0 && !tree.isGroup(block.node) && tree.row(block.node) === row) { g.strokeStyle = focus; g.lineWidth = 2; g.strokeRect(x + 1, y + 1, Math.max(1, wide - 2), ROW - 3); }
        if (wide < 26 || block.node === -2) continue;
        g.save();
        g.beginPath();
        g.rect(x, y, wide - 3, ROW);
        g.clip();
        g.fillStyle = ink;
        g.fillText(block.node < 0 ? `all: ${show(value(-1))}` : text(block.node), x + 4, y + ROW / 2);
        g.restore();
      }
      g.textBaseline = "alphabetic";
    },
    read: (x, y, width) => { const block = at(x, y, width); return block ? words(block) : ""; },
    pick: (x, y, width) => { const block = at(x, y, width); if (block && block.node !== -2) picked(block.node); },
    rows: () => table([
      { name: "layer or operation", value: (block) => (block.node < 0 ? "all" : text(block.node)), words: true }, { name: "depth", value: (block) => block.level },
      { name: measure(), value: (block) => value(block.node), show }, { name: "share", value: (block) => percent(value(block.node), total(tree, measure())), words: false }],
    drawn.filter((block) => block.node !== -2).slice(0, 200), "Flame"),
  });
  return { node: make("div", { class: "flame" }, chart.node), repaint: () => chart.repaint() };
}
