// What needs no browser: packets, numbers as text, addresses.

import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, cycles, percent, plain, rate, seconds, titled } from "../src/format.js";
import { decode } from "../src/packet.js";
import { decoded, encoded } from "../src/state.js";
import { encode } from "./stub.js";

const buffer = (/** @type {Uint8Array} */ packet) => /** @type {ArrayBuffer} */ (packet.buffer);

test("a packet gives back its columns", () => {
  const table = decode(buffer(encode({ a: [1.5, -2], b: Int32Array.of(3, 4), c: ["x", "x"] }, { note: "n" })));
  assert.equal(table.count, 2);
  assert.deepEqual([...table.numbers("a")], [1.5, -2]);
  assert.deepEqual([...table.numbers("b")], [3, 4]);
  assert.equal(table.words("c").at(1), "x");
  assert.deepEqual(table.words("c").distinct, ["x"]);
  assert.equal(table.header.note, "n");
  assert.throws(() => table.numbers("d"), /no column d/);
});

test("what is no packet is refused in words", () => {
  assert.throws(() => decode(new ArrayBuffer(3)), /not a table/);
  assert.throws(() => decode(new TextEncoder().encode("x".repeat(64)).buffer), /not a table/);
  const whole = encode({ a: [1, 2, 3] });
  assert.throws(() => decode(/** @type {ArrayBuffer} */ (whole.slice(0, whole.length - 8).buffer)), /cut short/);
  assert.throws(() => decode(/** @type {ArrayBuffer} */ (whole.slice(0, 20).buffer)), /cut short/);
});

test("numbers as text", () => {
  assert.equal(plain(null), "–");
  assert.equal(plain(1234567), "1,234,567");
  assert.equal(plain(0.12345), "0.123");
  assert.equal(percent(1, 0), "–");
  assert.equal(rate(424), "424 /s");
  assert.equal(rate(504_324), "504 k/s");
  assert.equal(titled({ name: "Net (training)", mode: "training", system: "m2000" }), "Net (training) on m2000");
  assert.equal(titled({ name: "net", mode: "training", system: "m2000" }), "net training on m2000");
  assert.equal(bytes(638976), "624.0 KiB");
  assert.equal(seconds(0.0012), "1.20 ms");
  assert.equal(cycles(12_345_678), "12.35 Mcycles");
});

test("an address holds a whole selection", () => {
  const selection = { ...decoded(""), page: "memory", tile: 7, ipu: 3, operation: "a/b?c=1&d", search: "größe #1" };
  assert.deepEqual(decoded(encoded(selection)), selection);
  assert.equal(encoded(decoded("#memory")), "#memory");
  assert.equal(decoded("#memory?tile=-1&nonsense=2").tile, null);
});
