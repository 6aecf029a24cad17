// The tree of operations: sums, order, folding, search; and the flame that is drawn of it.

import assert from "node:assert/strict";
import { test } from "node:test";
import { blocks } from "../src/flame.js";
import { costs, rowOf, searched, Tree } from "../src/optree.js";
import { decode } from "../src/packet.js";
import { encode, operationsOf } from "./stub.js";

const buffer = (/** @type {Uint8Array} */ packet) => /** @type {ArrayBuffer} */ (packet.buffer);

/** A function of two steps, called twice in a loop of four turns; another for the second layer; and a step after it. */
function made() {
  const { operations, sets } = operationsOf([
    { name: "begin", kind: "begin", host: 100 },
    { name: "loop", kind: "repeat", callee: "body", count: 4, compute: 4 * 3 * 30, sync: 4 * 3 * 10 + 7 },
    { name: "call a", kind: "call", function: "body", callee: "a", parent: 1, times: 4, layer: "net.layer.0", compute: 30, sync: 10 },
    { name: "matmul", function: "a", parent: 2, times: 8, layer: "net.layer.0", compute: 20, sync: 5, flops: 1000, file: "m/net.py", line: 7, vertices: 3, balance: 0.5, exchange_bytes: 64, sets: [["amp", 20, 5]] },
    { name: "relu", function: "a", parent: 2, times: 8, layer: "net.layer.0", compute: 10, sync: 5, file: "m/net.py", line: 8, vertices: 1, balance: 1, sets: [["map", 4, 2], ["copy", 6, 3]] },
    { name: "call a", kind: "call", function: "body", callee: "a", parent: 1, times: 4, layer: "net.layer.0", compute: 30, sync: 10 },
    { name: "call b", kind: "call", function: "body", callee: "b", parent: 1, times: 4, layer: "net.layer.1", compute: 30, sync: 10 },
    { name: "matmul", function: "b", parent: 6, times: 4, layer: "net.layer.1", compute: 20, sync: 5, flops: 1000, file: "m/net.py", line: 7, vertices: 3, balance: 0.5, exchange_bytes: 64, like: 3 },
    { name: "relu", function: "b", parent: 6, times: 4, layer: "net.layer.1", compute: 10, sync: 5, file: "m/net.py", line: 8, vertices: 1, balance: 1, like: 4 },
    { name: "loss", layer: "head", compute: 50, file: "m/train.py", line: 70, vertices: 2, balance: 1, sets: [["reduce", 50, 0]] },
  ]);
  return costs(decode(buffer(encode(operations))), decode(buffer(encode(sets))));
}
const WHOLE = 100 + (4 * 3 * 40 + 7) + 50;

test("what operations take adds up to the whole, each part once", () => {
  const found = made();
  assert.equal(found.cycles.reduce((a, b) => a + b, 0), WHOLE);
  assert.equal(found.cycles[1], 7, "of the loop itself only what its body does not have");
  assert.ok(!found.members.includes(2), "a call without cost of its own is no operation");
  for (const grouping of /** @type {const} */ (["layer", "operation", "line", "vertex"])) {
    const tree = new Tree(found, grouping);
    const whole = [...tree.children(-1)].reduce((sum, node) => sum + tree.value(node, "cycles"), 0);
    assert.equal(whole, WHOLE, grouping);
    for (let group = 0; group < tree.groups; group++) {
      const inside = [...tree.children(group)].reduce((sum, node) => sum + tree.value(node, "cycles"), 0);
      assert.equal(inside, tree.value(group, "cycles"), `${grouping}: ${tree.label[group]}`);
    }
  }
});

test("layers: chains are one, numbered ones are repeats, sets are under their operation and its twin", () => {
  const tree = new Tree(made(), "layer");
  const net = tree.label.indexOf("net.layer");
  assert.ok(net >= 0);
  assert.equal(tree.repeats(net), 2);
  assert.equal(tree.repeats(tree.label.indexOf("head")), 0);
  assert.equal(tree.value(net, "cycles"), 4 * 3 * 40);
  assert.equal(tree.value(net, "flops"), 4 * 3 * 1000);
  for (const row of [4, 8]) {
    const item = tree.groups + tree.itemRow.indexOf(row), under = tree.children(item);
    assert.deepEqual([...under].map((node) => tree.costs.sets.words("vertex").at(tree.set(node))), ["map", "copy"]);
    assert.deepEqual([...under].map((node) => [tree.above(node), tree.row(node), tree.level(node)]), [[item, row, 3], [item, row, 3]]);
    assert.deepEqual([...under].map((node) => tree.value(node, "cycles")), row === 4 ? [48, 72] : [24, 36]);
  }
});

test("rows in sight: what is open, siblings in order", () => {
  const tree = new Tree(made(), "operation");
  const key = (/** @type {number} */ node) => tree.value(node, "cycles");
  const names = (/** @type {Int32Array} */ rows) => [...rows].map((node) => (tree.isGroup(node) ? tree.label[node] : "  " + tree.row(node)));
  assert.deepEqual(names(tree.visible(new Set(), key, true, "cycles")), ["matmul", "relu", "begin", "loss", "loop"]);
  assert.deepEqual(names(tree.visible(new Set([tree.label.indexOf("relu")]), key, false, "cycles")), ["loop", "loss", "begin", "relu", "  8", "  4", "matmul"]);
  assert.deepEqual([...tree.flat(key, true, "cycles")].map((node) => tree.row(node)), [3, 4, 0, 7, 8, 9, 1]);
});

test("the program's own tree: a function is where it is first run from", () => {
  const tree = new Tree(made(), "program"), at = (/** @type {string} */ label) => tree.label.indexOf(label);
  assert.deepEqual(tree.label, ["body ×4", "a ×8", "b ×4"]);
  assert.deepEqual([...tree.parent], [-1, at("body ×4"), at("body ×4")]);
  assert.equal(tree.value(at("a ×8"), "cycles"), 8 * 40);
  assert.deepEqual([...tree.children(-1)].map((node) => (tree.isGroup(node) ? tree.label[node] : tree.row(node))), ["body ×4", 0, 1, 9]);
});

test("search: words, layers, lines, expressions", () => {
  const { table } = made();
  const rows = (/** @type {string} */ text) => [...searched(table, text)].flatMap((hit, i) => (hit ? [i] : []));
  assert.deepEqual(rows("MATMUL"), [3, 7]);
  assert.deepEqual(rows("layer.1"), [6, 7, 8]);
  assert.deepEqual(rows("net.py:7"), [3, 7]);
  assert.deepEqual(rows("/^(loss|be.*)$/"), [0, 9]);
  assert.deepEqual(rows("/MATMUL/"), []);
  assert.deepEqual(rows("/MATMUL/i"), [3, 7]);
  assert.deepEqual(rows("nowhere"), []);
  assert.throws(() => rows("/(/"), SyntaxError);
  assert.equal(rowOf(table, table.words("key").at(7)), 7);
  assert.equal(rowOf(table, "nothing"), -1);
});

test("a flame's blocks lie side by side, under what they are part of", () => {
  const tree = new Tree(made(), "layer"), drawn = blocks(tree, "cycles", -1, 1e-6);
  for (const level of new Set(drawn.map((block) => block.level))) {
    let end = 0;
    for (const block of drawn.filter((each) => each.level === level).sort((a, b) => a.x - b.x)) {
      assert.ok(block.x >= end - 1e-9, `level ${level}`);
      end = block.x + block.width;
    }
    assert.ok(end <= 1 + 1e-9);
  }
  assert.equal(drawn.filter((block) => block.level === 1).reduce((sum, block) => sum + block.width, 0).toFixed(9), "1.000000000");
  const thin = blocks(tree, "cycles", -1, 0.16).filter((block) => block.node === -2);
  assert.ok(thin.length > 0, "what is too thin stands together");
  const zoomed = blocks(tree, "cycles", tree.label.indexOf("head"), 1e-6);
  assert.deepEqual(zoomed.map((block) => [block.node === -1 ? "all" : tree.isGroup(block.node) ? tree.label[block.node] : tree.row(block.node), block.width]), [["all", 1], ["head", 1], [9, 1]]);
});
