// The page Verdict, of reports by Abele's own writer and server.

import assert from "node:assert/strict";
import { before, test } from "node:test";
import { painted, press, readBy, serveStore, shot, skip, synthetic, tabTo, toldApart, visions, visit } from "./harness.js";
import { serveHeld, small } from "./stub.js";

/** @type {import("./harness.js").Served} */
let served;
/** @type {any} */
let summary;
/** Operations by name, as the console lists them. @type {any[]} */
let byName;
before(async () => {
  if (skip) return;
  const file = synthetic("--operations", "60", "--ipus", "2", "--tiles", "64", "--two");
  summary = readBy(file, "report.summary(0)");
  byName = readBy(file, "__import__('abele.report.store.answers', fromlist=['document']).document(report)['by_operation']");
  served = await serveStore(file);
});

test("it says what the store says", { skip }, async () => {
  await visit(served, "", async (page) => {
    const text = await page.locator("main").innerText();
    assert.match(text, /Fits\?\s+Yes/);
    for (const note of summary.notes) assert.ok(text.includes(note));
    for (const advice of summary.advice) assert.ok(text.includes(advice.text) && text.includes(advice.command));
    const { categories, max } = summary.tile_memory;
    assert.equal(Object.values(categories).reduce((a, b) => a + b, 0), max);
    const bar = await page.locator("canvas[aria-label^='Bytes on tile']").getAttribute("aria-label");
    for (const [name, value] of Object.entries(categories)) if (value) assert.ok(bar?.includes(name), name);
    assert.match(text, /± 10.0 % as a rule with planner poplibs; this is of best/);
    assert.match(text, /nine in ten by less than 30.0 %: synthetic; this one is of planner best\./);
    assert.ok(text.includes(`that it holds, ${(100 * max / summary.tile_memory.limit).toFixed(1)} % of its limit`));
    assert.match(text, /around the chips: gateways, electronics, losses [^\n]*\t0.100\t10.0 %/);
    await page.locator("text=Operations that take most").waitFor();
    await painted(page);
    await shot(page, "verdict");
  });
});

test("an operation's row says what all of its name take, which is what the console lists", { skip }, async () => {
  await visit(served, "", async (page) => {
    const cells = await page.locator("[aria-label='Operations that take most'] tbody tr").evaluateAll((rows) => rows.map((row) => [...row.children].map((cell) => cell.textContent ?? "")));
    assert.ok(cells.length > 3);
    for (const [name, , , , share, all] of cells) {
      const named = byName.find((row) => row.key === name) ?? assert.fail(name);
      assert.equal(all.split(", ").pop(), (100 * named.cycles / summary.cycles).toFixed(1) + " %", name);
      assert.ok(parseFloat(share) <= parseFloat(all.split(", ").pop() ?? ""), name);
    }
    assert.ok(cells.some(([, , , , share, all]) => !all.endsWith(", " + share)), "some name comes of several lines");
  });
});

test("a command is copied, links lead to where the numbers come from", { skip }, async () => {
  await visit(served, "", async (page) => {
    await page.locator("button[aria-label^='Copy the command']").first().click();
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), summary.advice[0].command);
    await page.locator("h2:has-text('Operations that take most') + div a").first().click();
    await page.waitForFunction(() => document.documentElement.dataset.shown === "operations");
    assert.match(page.url(), /operation=/);
    await page.locator("[aria-selected=true]").waitFor();
  });
});

test("another program of the report", { skip }, async () => {
  await visit(served, "#verdict?program=1", async (page) => {
    assert.match(await page.locator("main h2").first().innerText(), /changed/);
    await page.locator("select[aria-label=Program]").selectOption("0");
    await page.waitForFunction(() => !document.querySelector("main h2")?.textContent?.includes("changed"));
  });
});

test("keyboard alone reads the charts and opens their tables", { skip }, async () => {
  await visit(served, "", async (page) => {
    await tabTo(page, "canvas[aria-label^='Bytes on tile']");
    await press(page, "Home");
    assert.match((await page.locator("#said").textContent()) ?? "", /^state /);
    await press(page, "End");
    assert.match((await page.locator("#said").textContent()) ?? "", /^free/);
    await tabTo(page, "details.as-table summary");
    await press(page, "Enter");
    assert.ok(await page.locator("details[open] table").first().isVisible());
    await tabTo(page, "canvas[aria-label^='Cycles by kind']");
    await press(page, "ArrowDown");
    assert.match((await page.locator("#said").textContent()) ?? "", /^exchange /);
  }, { still: true });
});

test("what does not fit says by how much, and why", { skip }, async () => {
  const held = small({ tile_memory: { ...small()["p/0/summary"].tile_memory, fits: false, max: 700_000, gap: 61_024 }, explanation: { text: "Values take the room." }, advice: [{ text: "Halve it", kind: "fit", command: "x", error: "It cannot be halved.", bytes: null, throughput: null, gain_bytes: null, gain_cycles: null, fits: null }] });
  const stub = await serveHeld(held);
  await visit(stub, "", async (page) => {
    const text = await page.locator("main").innerText();
    assert.match(text, /No, 59.6 KiB over/);
    assert.match(text, /Values take the room\./);
    assert.match(text, /It cannot be halved\./);
  }, { dark: true });
  stub.stop();
});

for (const vision of visions) {
  test(`parts are told apart with ${vision}`, { skip }, async () => {
    await visit(served, "", (page) => toldApart(page, page.locator("main section:has(> h2:text('What the fullest tile holds')) .key canvas")), { vision });
  });
}
