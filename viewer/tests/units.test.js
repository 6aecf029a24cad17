// What needs no browser: packets, numbers as text, addresses.

import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, cycles, percent, plain, rate, seconds, titled } from "../src/format.js";
import { sortedBy } from "../src/order.js";
import { decode } from "../src/packet.js";
import { decoded, encoded } from "../src/state.js";
import { RowsBy } from "../src/tiles.js";
import { encode } from "./stub.js";
import { atOnce, inSlices } from "../src/slices.js";

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

test("words are read one by one, and all of them, whatever they hold", () => {
  const odd = ["]", "},{", "\\", "\\\"", "a\"],\"b", "\u2028é😀", "[", "{", ",", "", "\n", ":[\"words\"]"], words = Array.from({ length: 6000 }, (_, i) => odd[i % odd.length] + i);
  const packet = () => decode(buffer(encode({ first: words, n: words.map((_, i) => i), second: [...words].reverse() }, { note: "[{[{\"" }))), table = packet();
  assert.equal(table.header.note, "[{[{\"");
  for (let i = 0; i < words.length; i += 7) assert.equal(table.words("first").at(i), words[i]);
  for (const [i, word] of words.entries()) assert.equal(table.words("second").at(words.length - 1 - i), word); // more than are read one by one
  assert.deepEqual(packet().words("second").distinct, [...words].reverse());
  assert.equal(table.numbers("n")[5999], 5999);
});

test("rows in the order of their numbers, and by a number in them", () => {
  const values = [3, -1, 0, 2.5, -0, Infinity, 3, -1e300, 1e-300, -Infinity], rows = Int32Array.from(values, (_, i) => i), value = (/** @type {number} */ row) => values[row];
  for (const sign of [1, -1]) assert.deepEqual([...sortedBy(rows, value, sign < 0)], [...rows].sort((a, b) => (values[a] === values[b] ? a - b : sign * (values[a] - values[b]))));
  assert.deepEqual([...sortedBy(Int32Array.of(9, 0, 3), value, false)], [9, 3, 0]);
  assert.deepEqual([...sortedBy(Int32Array.of(0, 1, 2), (row) => [NaN, 1, -1][row], false)], [2, 1, 0]);
  const by = new RowsBy(Int32Array.of(4, 1, 4, 0));
  assert.deepEqual([[...by.of(4)], [...by.of(2)], [...by.of(-1)], [...by.of(9)], by.has(1), by.has(3), by.values()], [[0, 2], [], [], [], true, false, [0, 1, 4]]);
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
  for (const odd of ["#memory?tile=1e3", `#memory?tile=${"9".repeat(400)}`, "#memory?constructor=1&__proto__=2&toString=3&page=live"]) assert.deepEqual(decoded(odd), decoded("#memory"));
  assert.equal(decoded("#%E0%A4%A?tile=2").page, "%E0%A4%A");
});

test("work in slices is the same work, and lets others have their turn", async () => {
  let turns = 0;
  const work = function* () {
    let sum = 0;
    for (let i = 0; i < 5; i++) {
      for (const begun = performance.now(); performance.now() - begun < 20;);
      sum += i;
      yield;
    }
    return sum;
  };
  const other = setInterval(() => { turns++; });
  assert.equal(await inSlices(work()), 10);
  clearInterval(other);
  assert.ok(turns > 1, `others had ${turns} turns`);
  assert.equal(atOnce(work()), 10);
});
