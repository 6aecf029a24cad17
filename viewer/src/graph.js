// The flow of data as boxes and arrows: layers that are folded are one box. Everything is a loop, nothing calls itself, so
// that a graph may be as deep as it likes. No elements here.

/**
 * @typedef {import("./optree.js").Tree} Tree
 * @typedef {import("./packet.js").Table} Table
 * @typedef {{
 *   node: Int32Array, size: Int32Array, alone: number, from: Int32Array, to: Int32Array, bytes: Float64Array, tensors: Int32Array, back: Uint8Array,
 * }} Graph
 * Boxes in the order of the program: the node of the tree that each is, and how many operations are in it. Arrows between
 * boxes: bytes and number of the tensors that go along them; `back` where they lead to an earlier box. `alone`: how many
 * boxes have no arrow, and are left out.
 */

export const MOST_BOXES = 20_000;

/** The box that each operation is in, as a node of the tree by layer: itself, or its outermost folded group.
 * @param {Tree} tree @param {Set<number>} open */
function boxed(tree, open) {
  const group = new Int32Array(tree.groups); // the box of what is in a group, or -1 where it is open
  for (let g = 0; g < tree.groups; g++) {
    const above = tree.parent[g], outer = above < 0 ? -1 : group[above];
    group[g] = outer >= 0 ? outer : open.has(g) ? -1 : g;
  }
  const box = new Int32Array(tree.costs.count).fill(-1);
  for (let i = 0; i < tree.items; i++) {
    const inside = tree.itemGroup[i] < 0 ? -1 : group[tree.itemGroup[i]];
    box[tree.itemRow[i]] = inside >= 0 ? inside : tree.groups + i;
  }
  return box;
}

/** How many boxes there would be. @param {Tree} tree @param {Set<number>} open */
export function boxCount(tree, open) {
  return new Set(boxed(tree, open).filter((box) => box >= 0)).size;
}

/** Groups to open so that at most so many boxes are shown, the largest first. @param {Tree} tree @param {number} most */
export function opened(tree, most) {
  /** @type {Set<number>} */
  const open = new Set();
  let boxes = tree.children(-1).length;
  /** @type {number[]} */
  let closed = [...tree.children(-1)].filter((node) => tree.isGroup(node));
  for (;;) {
    closed.sort((a, b) => tree.size[b] - tree.size[a] || a - b);
    const next = closed.find((group) => boxes + tree.degree(group) - 1 <= most);
    if (next === undefined) return open;
    open.add(next);
    boxes += tree.degree(next) - 1;
    closed = closed.filter((group) => group !== next).concat([...tree.children(next)].filter((node) => tree.isGroup(node)));
  }
}

/** Operations as they run: by the first of their moments, those without one last. @param {number} count @param {Table} moments */
export function inOrder(count, moments) {
  const first = new Float64Array(count).fill(Infinity), operation = moments.numbers("operation");
  for (let m = operation.length - 1; m >= 0; m--) if (operation[m] >= 0) first[operation[m]] = m;
  return Int32Array.from({ length: count }, (_, row) => row).sort((a, b) => (first[a] === first[b] ? 0 : first[a] - first[b]) || a - b);
}

/** @param {Tree} tree by layer @param {Table} tensors @param {Table} flow @param {Int32Array} order operations as they run @param {Set<number>} open groups @returns {Graph} */
export function graphOf(tree, tensors, flow, order, open) {
  const box = boxed(tree, open), place = new Map();
  /** @type {number[]} */
  const node = [];
  /** @type {number[]} */
  const size = [];
  const at = new Int32Array(box.length).fill(-1);
  for (const row of order) {
    if (box[row] < 0) continue;
    let i = place.get(box[row]);
    if (i === undefined) { i = node.length; place.set(box[row], i); node.push(box[row]); size.push(0); }
    size[i]++;
    at[row] = i;
  }
  if (node.length > MOST_BOXES) throw new Error(`The graph would have ${node.length.toLocaleString("en")} boxes, more than ${MOST_BOXES.toLocaleString("en")}: fold some layers.`);
  const bytes = tensors.numbers("bytes"), maker = flow.numbers("producer"), reader = flow.numbers("consumer"), what = flow.numbers("tensor");
  /** @type {Map<number, number>} */
  const arrows = new Map();
  /** @type {[number, number, number, number][]} */
  const made = [];
  for (let f = 0; f < flow.count; f++) {
    const from = maker[f] < 0 ? -1 : at[maker[f]], to = at[reader[f]];
    if (from < 0 || to < 0 || from === to) continue;
    const key = from * node.length + to;
    let arrow = arrows.get(key);
    if (arrow === undefined) { arrow = made.length; arrows.set(key, arrow); made.push([from, to, 0, 0]); }
    made[arrow][2] += what[f] < 0 ? 0 : bytes[what[f]];
    made[arrow][3]++;
  }
  const joined = new Int32Array(node.length).fill(-1);
  for (const [from, to] of made) joined[from] = joined[to] = 0;
  let kept = 0;
  for (let i = 0; i < joined.length; i++) if (joined[i] === 0 || !made.length) joined[i] = kept++;
  const [shown, sizes] = [node, size].map((values) => Int32Array.from(values.filter((_, i) => joined[i] >= 0)));
  return {
    node: shown, size: sizes, alone: node.length - kept, from: Int32Array.from(made, (arrow) => joined[arrow[0]]), to: Int32Array.from(made, (arrow) => joined[arrow[1]]),
    bytes: Float64Array.from(made, (arrow) => arrow[2]), tensors: Int32Array.from(made, (arrow) => arrow[3]), back: Uint8Array.from(made, (arrow) => (arrow[0] > arrow[1] ? 1 : 0)),
  };
}

/** Neighbours by box: those in `a`'s order of `of`. @param {number} count @param {Int32Array} of @param {Int32Array} other @param {Uint8Array} left which arrows are left out @returns {[Int32Array, Int32Array]} */
function neighbours(count, of, other, left) {
  const start = new Int32Array(count + 1);
  for (let e = 0; e < of.length; e++) if (!left[e]) start[of[e] + 1]++;
  for (let i = 0; i < count; i++) start[i + 1] += start[i];
  const next = start.slice(), found = new Int32Array(start[count]);
  for (let e = 0; e < of.length; e++) if (!left[e]) found[next[of[e]]++] = other[e];
  return [found, start];
}

export const WIDE = 150, TALL = 30, GAP_X = 18, GAP_Y = 34; // pixels of a box, and between boxes

/**
 * Where boxes lie: each below all that it reads from, beside others in an order that crosses few arrows.
 * @param {Graph} graph @returns {{x: Float64Array, y: Float64Array, layer: Int32Array, layers: Int32Array[]}} middles of boxes
 */
export function laidOut(graph) {
  const count = graph.node.length, layer = new Int32Array(count);
  const [above, aboveStart] = neighbours(count, graph.to, graph.from, graph.back), [below, belowStart] = neighbours(count, graph.from, graph.to, graph.back);
  for (let i = 0; i < count; i++) for (let k = aboveStart[i]; k < aboveStart[i + 1]; k++) layer[i] = Math.max(layer[i], layer[above[k]] + 1);
  // What nothing reads from above goes down to just above what reads it.
  for (let i = count - 1; i >= 0; i--) {
    if (aboveStart[i] !== aboveStart[i + 1] || belowStart[i] === belowStart[i + 1]) continue;
    let least = Infinity;
    for (let k = belowStart[i]; k < belowStart[i + 1]; k++) least = Math.min(least, layer[below[k]]);
    layer[i] = Math.max(0, least - 1);
  }
  /** @type {number[][]} */
  const rows = [];
  for (let i = 0; i < count; i++) (rows[layer[i]] ??= []).push(i);
  const layers = Array.from(rows, (row) => row ?? []);
  const x = new Float64Array(count), y = Float64Array.from(layer, (value) => value * (TALL + GAP_Y));
  const step = WIDE + GAP_X;
  for (const row of layers) row.forEach((box, i) => { x[box] = (i - (row.length - 1) / 2) * step; });
  const wanted = new Float64Array(count);
  for (let sweep = 0; sweep < 6; sweep++) {
    const down = sweep % 2 === 0, [found, start] = down ? [above, aboveStart] : [below, belowStart];
    for (let l = 0; l < layers.length; l++) {
      const row = layers[down ? l : layers.length - 1 - l];
      for (const box of row) {
        let sum = 0;
        for (let k = start[box]; k < start[box + 1]; k++) sum += x[found[k]];
        wanted[box] = start[box] === start[box + 1] ? x[box] : sum / (start[box + 1] - start[box]);
      }
      row.sort((a, b) => wanted[a] - wanted[b] || a - b);
      let free = -Infinity, shift = 0;
      for (const box of row) {
        x[box] = Math.max(wanted[box], free);
        shift += wanted[box] - x[box];
        free = x[box] + step;
      }
      for (const box of row) x[box] += shift / row.length;
    }
  }
  return { x, y, layer, layers: layers.map((row) => Int32Array.from(row)) };
}
