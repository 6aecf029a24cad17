// The line of moments, what of it is in sight, columns over tiles, and what a page keeps in the address.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Line, at, placeAt } from "../src/moments.js";
import { decode } from "../src/packet.js";
import { Window } from "../src/pages/timeline/window.js";
import { rowTiles } from "../src/pages/timeline/raster.js";
import { tilesOf } from "../src/pages/timeline/step.js";
import { decoded, numbersOf, viewWith } from "../src/state.js";
import { TileColumns } from "../src/tiles.js";
import { encode, operationsOf } from "./stub.js";

const table = (/** @type {Record<string, any>} */ columns) => decode(/** @type {ArrayBuffer} */ (encode(columns).buffer));

/** A loop of ten turns around a call of two steps: in, call, step, step, out, out, a step. */
function line() {
  const { operations } = operationsOf([
    { name: "loop", kind: "repeat", count: 10, callee: "body", compute: 300 }, { name: "call", kind: "call", callee: "inner", parent: 0, times: 10, compute: 30 },
    { name: "a", parent: 1, times: 10, compute: 10 }, { name: "b", parent: 1, times: 10, compute: 20, ipu: 1 }, { name: "c", compute: 40 },
  ]);
  const moments = { operation: Int32Array.of(0, 1, 2, 3, 1, 0, 4), start: [0, 0, 0, 10, 30, 300, 300], sync: [0, 0, 0, 0, 0, 0, 0], exchange: [0, 0, 4, 0, 0, 0, 0], compute: [0, 0, 6, 20, 0, 0, 40], host: [0, 0, 0, 0, 0, 0, 0], ipu: Int32Array.of(-1, -1, 0, 1, -1, -1, 0), depth: Int32Array.of(0, 1, 2, 2, 1, 0, 0) };
  return new Line(table(moments), table(operations), 340);
}

test("what waits for the host is apart from the overhead", () => {
  const { operations } = operationsOf([{ name: "load", host: 30 }, { name: "end", kind: "end", host: 10, overhead: 40 }]);
  const zero = [0, 0], it = new Line(table({ operation: Int32Array.of(0, 1), start: [0, 30], sync: zero, exchange: zero, compute: zero, host: [30, 50], ipu: Int32Array.of(-1, -1), depth: Int32Array.of(0, 0) }), table(operations), 80);
  assert.deepEqual(it.parts.slice(-2).map((column) => [...column]), [[30, 10], [0, 40]]);
});

test("calls and loops are around what they run", () => {
  assert.deepEqual(line().folds, [{ enter: 0, exit: 5, level: 0 }, { enter: 1, exit: 4, level: 1 }]);
});

test("a loop's other turns are long, short, or of no width", () => {
  const { axes, turns } = line();
  assert.equal(turns, true);
  assert.deepEqual([...axes.cycles.edges], [0, 0, 0, 10, 30, 300, 300, 340]);
  assert.deepEqual([...axes.folded.edges].map(Math.round), [0, 0, 0, 10, 30, 31, 31, 71]);
  assert.deepEqual([...axes.moments.edges], [0, 1, 2, 3, 4, 5, 6, 7]);
});

test("positions and cycles belong together on every axis", () => {
  const it = line();
  assert.equal(at(it.axes.cycles, 15), 3);
  assert.equal(at(it.axes.cycles, 29.9), 3);
  assert.equal(it.cycle(it.axes.folded, 15), 15);
  assert.equal(Math.round(it.cycle(it.axes.folded, it.axes.folded.edges[6] + 20)), 320);
  assert.equal(it.cycle(it.axes.moments, 3.5), 20);
  const between = it.cycle(it.axes.folded, (it.axes.folded.edges[4] + it.axes.folded.edges[5]) / 2);
  assert.ok(between > 30 && between < 300, "half way through the turns that are not drawn");
  assert.deepEqual([...it.on(0)], [2, 6]);
  assert.equal(placeAt(it.axes.cycles, it.on(0), 299), 0);
  assert.equal(it.first("/b/3"), 3);
  assert.equal(it.first("nothing"), -1);
});

test("a window stays inside, keeps what is under the pointer, and shows the same moments along another axis", () => {
  const { axes } = line(), window = new Window(axes.cycles, null);
  assert.ok(window.whole);
  window.zoom(50, 2, 100);
  assert.deepEqual([window.from, window.to], [85, 255]);
  window.zoom(0, 10, 100);
  assert.equal(window.from, 85);
  window.pan(1e6, 100);
  assert.equal(window.from, 0);
  window.pan(-1e6, 100);
  assert.equal(window.to, 340);
  window.set(10, 30);
  assert.deepEqual(window.moments(), [3, 3]);
  const other = window.along(axes.moments);
  assert.deepEqual([other.from, other.to], [3, 4]);
});

test("a tile column is read by tile, and added up", () => {
  const columns = new TileColumns(table({ column: Int32Array.of(0, 0, 2), stop: Int32Array.of(3, 8, 8), value: Int32Array.of(5, 7, 1) }));
  assert.deepEqual([0, 2, 3, 7].map((tile) => columns.at(0, tile)), [5, 5, 7, 7]);
  assert.equal(columns.at(1, 4), 0, "no such column: nothing");
  assert.deepEqual(columns.most(0), { tile: 3, most: 7, sum: 3 * 5 + 5 * 7 });
  const sum = new Float64Array(8);
  columns.add(0, sum);
  columns.add(2, sum, 10);
  assert.deepEqual([...sum], [15, 15, 15, 17, 17, 17, 17, 17]);
});

test("every tile is on a row of pixels, and a row of a few tiles repeats", () => {
  for (const [height, tiles] of [[368, 1472], [100, 1472], [96, 4], [10, 10]]) {
    const met = new Set();
    for (let row = 0; row < height; row++) { const [a, b] = rowTiles(row, height, [0, tiles]); for (let t = a; t < b; t++) met.add(t); }
    assert.equal(met.size, tiles, `${tiles} tiles on ${height} rows`);
  }
});

test("the tiles of a group are those that the store puts there", () => {
  for (const tiles of [1472, 100, 7]) {
    const groups = Math.min(32, tiles);
    for (let t = 0; t < tiles; t++) {
      const [first, last = first] = tilesOf(Math.floor((t * groups) / tiles), groups, tiles).split("–").map(Number);
      assert.ok(first <= t && t <= last, `tile ${t} of ${tiles}`);
    }
  }
});

test("a page's own part of the address changes part by part", () => {
  const at = (/** @type {string} */ view) => ({ ...decoded(""), view });
  const view = viewWith(at("axis=moments&window=1-2.5"), { tiles: "3-9", axis: null });
  assert.equal(view, "window=1-2.5&tiles=3-9");
  assert.deepEqual(numbersOf(at(view), "window", 2), [1, 2.5]);
  assert.equal(numbersOf(at(view), "window", 3), null);
  assert.equal(numbersOf(at("window=x-y"), "window", 2), null);
  assert.equal(numbersOf(at(""), "window", 2), null);
});
