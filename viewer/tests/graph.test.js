// The layout of the flow of data: what is above what, beside what, and how much it bears.

import assert from "node:assert/strict";
import { test } from "node:test";
import { boxCount, graphOf, inOrder, laidOut, MOST_BOXES, opened, WIDE } from "../src/graph.js";
import { costs, Tree } from "../src/optree.js";
import { decode } from "../src/packet.js";
import { encode, operationsOf } from "./stub.js";

const table = (/** @type {any} */ columns) => decode(/** @type {ArrayBuffer} */ (encode(columns).buffer));

/** Operations in layers of `wide`, each reads the ones before it that `reads` names. @param {number} count @param {number} wide @param {(i: number) => number[]} reads */
function flow(count, wide, reads) {
  const made = operationsOf(Array.from({ length: count }, (_, i) => ({ name: "op" + i, compute: 1, layer: `net.${Math.floor(i / wide)}` })));
  const pairs = Array.from({ length: count }, (_, i) => reads(i).map((from) => [from, i])).flat();
  const tensors = table({ id: Int32Array.from({ length: count }, (_, i) => i), bytes: Array.from({ length: count }, () => 8) });
  const [from, to] = [0, 1].map((end) => Int32Array.from(pairs, (pair) => pair[end]));
  return { tree: new Tree(costs(table(made.operations), table(made.sets)), "layer"), tensors, links: table({ producer: from, consumer: to, tensor: from }), order: Int32Array.from({ length: count }, (_, i) => i) };
}

test("a box lies below all that it reads, and none on another", () => {
  const { tree, tensors, links, order } = flow(400, 20, (i) => [i - 1, i - 7, i - 20].filter((from) => from >= 0));
  const all = new Set(Array.from({ length: tree.groups }, (_, g) => g)), graph = graphOf(tree, tensors, links, order, all), place = laidOut(graph);
  assert.equal(graph.node.length, 400);
  for (let e = 0; e < graph.from.length; e++) assert.ok(place.y[graph.to[e]] > place.y[graph.from[e]]);
  for (const row of place.layers) for (let i = 1; i < row.length; i++) assert.ok(place.x[row[i]] - place.x[row[i - 1]] >= WIDE);
});

test("folded layers are one box, with all their arrows as one", () => {
  const { tree, tensors, links, order } = flow(40, 10, (i) => (i ? [i - 1] : []));
  const graph = graphOf(tree, tensors, links, order, new Set([tree.label.indexOf("net")]));
  assert.deepEqual([...graph.size], [10, 10, 10, 10]);
  assert.deepEqual([...graph.from].map((from, e) => [from, graph.to[e], graph.bytes[e], graph.tensors[e]]), [[0, 1, 8, 1], [1, 2, 8, 1], [2, 3, 8, 1]]);
  assert.equal(graphOf(tree, tensors, links, order, new Set()).node.length, 1);
  assert.equal(boxCount(tree, new Set([0])), 4);
  assert.deepEqual([...opened(tree, 4)], [0]);
  assert.ok(boxCount(tree, opened(tree, 22)) <= 22);
});

test("an arrow to an earlier box is one that leads back, and no layout waits for it", () => {
  const { tree, tensors, links, order } = flow(20, 10, (i) => (i ? [i - 1] : [15]));
  const graph = graphOf(tree, tensors, links, order, new Set([0]));
  assert.deepEqual([...graph.back], [1, 0]);
  assert.deepEqual([...laidOut(graph).layer], [0, 1]);
});

test("a chain of 15,000 operations is laid out; more boxes than can be drawn are refused in words", () => {
  const { tree, tensors, links, order } = flow(15_000, 100, (i) => (i ? [i - 1] : []));
  const all = new Set(Array.from({ length: tree.groups }, (_, g) => g));
  assert.equal(laidOut(graphOf(tree, tensors, links, order, all)).layers.length, 15_000);
  const many = flow(MOST_BOXES + 1, MOST_BOXES, () => []);
  assert.throws(() => graphOf(many.tree, many.tensors, many.links, many.order, new Set([0, 1, 2])), /20,001 boxes.*fold/);
});

test("operations come as they run, not as they are stored", () => {
  assert.deepEqual([...inOrder(5, table({ operation: Int32Array.of(0, 3, 1, 3, -1, 2) }))], [0, 3, 1, 2, 4]);
});
