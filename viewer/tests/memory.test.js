// Page Memory: whose bytes are on which tile. Against synthetic reports behind Abele's own server.

import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, percent } from "../src/format.js";
import { frames, painted, press, said, shot, skip, tabTo, toldApart, visions, visit } from "./harness.js";
import { heldBy, profiled, rowsOf, stored, synthetic, whole } from "./synthetic.js";
import { encode, serveHeld } from "./stub.js";

/** @typedef {import("playwright-core").Page} Page */

const usual = () => synthetic("--ipus", "4", "--operations", "300");
const full = () => synthetic("--ipus", "4", "--operations", "300", "--out-of-memory");

test("its totals are the store's", { skip }, async () => {
  await visit(await usual(), "#memory", async (page) => {
    await whole(page);
    const { tile_memory: m } = await stored(page, "summary"), tiles = await stored(page, "tiles"), tensors = await stored(page, "tensors"), placements = await stored(page, "placements");
    const cards = await page.locator(".card").allInnerTexts();
    assert.match(cards[0], new RegExp(`${bytes(m.max)}[^]*of ${bytes(m.limit)}`));
    assert.match(cards[1], new RegExp(`IPU ${m.fullest_ipu}, tile ${m.fullest_tile}[^]*moment ${m.peak_moment}`));
    assert.match(cards[3], new RegExp(bytes(m.mean)));
    const total = tiles.numbers("total"), each = tiles.count / 4;
    const most = [0, 1, 2, 3].map((ipu) => total.subarray(ipu * each, (ipu + 1) * each).reduce((/** @type {number} */ a, /** @type {number} */ b) => Math.max(a, b), 0));
    assert.deepEqual(await rowsOf(page, "IPUs").then((rows) => rows.map((row) => [row[0], row[1], row[3]]).sort()), most.map((max, ipu) => [`IPU ${ipu}`, bytes(max), percent(max, m.limit)]));
    const kinds = await page.locator("[aria-label='Kinds of memory on this tile'] tbody tr").allInnerTexts();
    for (const [name, size] of Object.entries(m.categories)) if (size) assert.ok(kinds.some((row) => row.startsWith(name) && row.includes(bytes(size))), name);
    assert.ok(kinds.at(-1)?.includes(bytes(m.max)), "the kinds add up to the fullest tile");
    // what lies on the fullest tile at its peak is what is listed
    const alive = [...placements.numbers("tensor").keys()].filter((i) => placements.numbers("ipu")[i] === m.fullest_ipu && placements.numbers("first")[i] <= m.peak_moment && placements.numbers("last")[i] >= m.peak_moment);
    const sum = alive.reduce((all, i) => all + placements.numbers("bytes")[i], 0);
    assert.match(await page.locator("main .note", { hasText: "live at moment" }).innerText(), new RegExp(`^${alive.length} storages live at moment ${m.peak_moment}: ${bytes(sum)} on`));
    assert.match(await page.locator("main .note", { hasText: "Addresses at moment" }).innerText(), new RegExp(`${alive.length} storages`));
    assert.equal(tensors.count, placements.count);
    await painted(page);
    await shot(page, "memory");
  });
});

test("the columns as a table, fullest first; zoom keeps what is over", { skip }, async () => {
  await visit(await usual(), "#memory", async (page) => {
    await whole(page);
    const { tile_memory: m } = await stored(page, "summary");
    await page.locator("main details summary").first().click();
    const first = await page.locator("[aria-label='Bytes of tiles, fullest first'] tbody tr").first().innerText();
    assert.match(first, new RegExp(`^IPU ${m.fullest_ipu}, tile ${m.fullest_tile}\\s+${bytes(m.max)}`));
    await page.locator("main canvas[aria-label^='Bytes of every tile']").focus();
    await press(page, "w", "w");
    assert.match(page.url(), /view=zoom/);
    await press(page, "s", "s", "s");
    assert.doesNotMatch(page.url(), /zoom/);
  });
});

test("a cold tab opens as it was left", { skip }, async () => {
  const served = await usual();
  let hash = "";
  const chosen = async (/** @type {Page} */ page) => ({
    title: await page.locator("main section h2").first().innerText(), about: await page.locator(".made").innerText(), tile: await page.locator("input[aria-label=Tile]").inputValue(),
    map: await page.locator("button", { hasText: "Chip map" }).getAttribute("aria-pressed"), rows: (await rowsOf(page, "Tensors")).length,
  });
  /** @type {any} */
  let left;
  await visit(served, "#memory", async (page) => {
    await whole(page);
    await page.locator("main a", { hasText: /^IPU \d, tile \d+$/ }).click();
    await page.locator("button", { hasText: "Chip map" }).click();
    await page.locator("button", { hasText: /^All at moment/ }).click();
    await page.locator("select[aria-label='Grouped by']").selectOption("kind");
    await page.locator("input[type=search]").fill("weight1");
    await page.locator("[aria-label=Tensors] .grid-row", { hasText: "layer." }).first().click();
    await frames(page);
    left = await chosen(page);
    hash = new URL(page.url()).hash;
  });
  assert.match(left.about, /weight1/);
  await visit(served, hash, async (page) => {
    await whole(page);
    assert.deepEqual(await chosen(page), left);
    assert.ok((await painted(page, "as cells")).length);
    await shot(page, "memory-map");
  });
});

test("without a mouse: a column, a cell, a tensor, its operation", { skip }, async () => {
  await visit(await usual(), "#memory", async (page) => {
    await whole(page);
    await tabTo(page, "canvas[aria-label^='Bytes of every tile']");
    await press(page, "Home", "ArrowRight", "ArrowRight");
    assert.match(await said(page) ?? "", /IPU 0, tile \d+/);
    await press(page, "Enter");
    assert.match(page.url(), /ipu=0&tile=\d+/);
    assert.ok(await page.evaluate(() => document.activeElement?.matches("canvas")), "the chart keeps the focus");
    await page.keyboard.press("Shift+Tab");
    await tabTo(page, "button[aria-pressed=false]", 80);
    await page.locator("button", { hasText: "Chip map" }).focus();
    await press(page, "Enter");
    assert.equal(await page.evaluate(() => document.activeElement?.textContent), "Chip map");
    await tabTo(page, "canvas[aria-label*='as cells']");
    const before = page.url();
    await press(page, "ArrowDown", "ArrowRight", "Enter");
    assert.notEqual(page.url(), before);
    await page.locator("select[aria-label='When live']").focus();
    await page.locator("select[aria-label='When live']").selectOption("any");
    await tabTo(page, "[role=grid][aria-label=Tensors], [role=treegrid][aria-label=Tensors]");
    await press(page, "j", "j");
    assert.match(page.url(), /tensor/);
    await press(page, "/");
    assert.ok(await page.evaluate(() => document.activeElement?.matches("input[type=search]")));
  });
});

test("the addresses: a moment by keyboard, gaps told, the next tile has none", { skip }, async () => {
  await visit(await usual(), "#memory", async (page) => {
    await whole(page);
    await tabTo(page, "canvas[aria-label^='Addresses on tile'][aria-label*='one moment']", 90);
    await press(page, "ArrowRight", "ArrowRight");
    assert.match(await said(page) ?? "", /at [\d,]+/);
    await tabTo(page, "canvas[aria-label*='over the program']");
    await press(page, "ArrowUp");
    assert.match(await said(page) ?? "", /^moment \d+: \d+ storages, \d+ gaps/);
    assert.match(page.url(), /from=(\d+)&to=\1/);
    await page.locator("button[aria-label='Next tile']").click();
    await frames(page);
    assert.match(await page.locator("main").innerText(), /Addresses are modelled for the fullest tile of each IPU/);
  });
});

test("of a program that was compiled, the tiles of every moment add up to its line", { skip }, async () => {
  await visit(await profiled("mlp", "--train", "--batch", "8"), "#memory", async (page) => {
    await whole(page);
    const { tile_memory: m } = await stored(page, "summary"), max = (await stored(page, "liveness")).numbers("max"), all = (await stored(page, "tiles")).numbers("total").length;
    await page.locator("main details summary").first().click();
    const first = page.locator("[aria-label='Bytes of tiles, fullest first'] tbody tr").first();
    assert.ok((await first.innerText()).includes(bytes(m.max)));
    const last = max.length - 1;
    for (const moment of [m.peak_moment, 0, Math.floor(last / 2), last]) {
      await page.evaluate((moment) => { location.hash = `#memory?from=${moment}&to=${moment}`; }, moment);
      await page.locator("main h2", { hasText: `at moment ${moment}` }).first().waitFor();
      await page.locator("main details").first().evaluate((box) => { /** @type {HTMLDetailsElement} */ (box).open = true; });
      await frames(page);
      assert.match(await first.innerText(), new RegExp(`^tile \\d+\\s+${bytes(max[moment])}\\s`), `moment ${moment} of ${all} tiles`);
    }
    await page.evaluate((m) => { location.hash = `#memory?from=${m.peak_moment}&to=${m.peak_moment}&tile=${m.fullest_tile}`; }, m);
    await page.locator("main h2", { hasText: `at moment ${m.peak_moment}` }).first().waitFor();
    await frames(page);
    assert.ok((await page.locator("main .note", { hasText: "live at moment" }).innerText()).includes(`: ${bytes(m.max)} on tile ${m.fullest_tile}`), "what is listed adds up to the fullest tile");
    await shot(page, "memory-real");
  });
});

test("kinds and bytes are told apart by any eyes", { skip }, async () => {
  const served = await full();
  for (const vision of visions) {
    await visit(served, "#memory", (page) => toldApart(page, page.locator("main .key canvas")), { vision });
    await visit(served, "#memory?view=as%3Dmap", (page) => toldApart(page, page.locator("main .key canvas")), { vision });
  }
});

test("what does not fit: by how much, how many tiles, and where", { skip }, async () => {
  await visit(await full(), "#memory", async (page) => {
    await whole(page);
    const { tile_memory: m } = await stored(page, "summary"), tiles = await stored(page, "tiles");
    const over = tiles.numbers("total").filter((/** @type {number} */ x) => x > m.limit).length;
    assert.ok(over > 0 && !m.fits);
    const cards = await page.locator(".card").allInnerTexts();
    assert.ok(cards[2].includes("Over by") && cards[2].includes(bytes(m.gap)));
    assert.ok(cards[4].includes(over.toLocaleString("en")));
    assert.equal((await rowsOf(page, "IPUs")).reduce((sum, row) => sum + Number(row[5].replaceAll(",", "")), 0), over);
    await shot(page, "memory-full");
  }, { dark: true });
});

test("names that try to break out are names", { skip }, async () => {
  await visit(await synthetic("--operations", "60", "--hostile"), "#memory?view=when%3Dany", async (page) => {
    await whole(page);
    const rows = (await rowsOf(page, "Tensors")).flat().join("\n");
    assert.match(rows, /<script>d[^]*<\/script>/);
    assert.notEqual(await page.title(), "owned");
    assert.equal(await page.locator("main img, main script, main svg").count(), 0);
    await page.locator("[aria-label=Tensors] .grid-row").first().click();
    await frames(page);
    assert.equal(await page.locator("main img, main script, main svg").count(), 0);
  });
});

test("a program that does nothing has tiles, and no tensors", { skip }, async () => {
  await visit(await synthetic("--ipus", "1", "--empty"), "#memory", async (page) => {
    await whole(page);
    assert.match(await page.locator("main").innerText(), /0 storages live at moment 0/);
    await painted(page, "Bytes of every tile");
    await page.locator("button", { hasText: "Chip map" }).click();
    await frames(page);
    await painted(page, "as cells");
  });
});

test("a page that was saved without the numbers of single tiles says so, and shows no wrong ones", { skip }, async () => {
  const held = await heldBy(await usual(), ["tiles", "tensors", "placements", "liveness", "moments", "operations", "columns"]);
  held["p/0/columns"] = encode({ column: new Int32Array(0), stop: new Int32Array(0), value: new Int32Array(0) }, { thinned: true });
  const served = await serveHeld(held);
  await visit(served, "#memory", async (page) => {
    await whole(page);
    const { tile_memory: m } = JSON.parse(Buffer.from(held["p/0/summary"]).toString());
    assert.equal(await page.locator("button", { hasText: /^All at moment/ }).count(), 0);
    assert.ok((await rowsOf(page, "Tensors")).every((row) => /B$/.test(row[3])), "addresses tell of the fullest tile");
    await page.locator("button[aria-label='Next tile']").click();
    await frames(page);
    assert.ok((await rowsOf(page, "Tensors")).every((row) => row[3] === "–"));
    assert.ok((await page.locator("main h2").allInnerTexts()).some((text) => text.includes(`tile ${m.fullest_tile + 1}`)));
  });
  held["p/0/moments"] = encode({ operation: new Int32Array(0), start: [], sync: [], exchange: [], compute: [], host: [], ipu: new Int32Array(0), depth: new Int32Array(0) }, { thinned: true });
  const without = await serveHeld(held);
  await visit(without, "#liveness", async (page) => {
    assert.match(await page.locator("[role=alert]").innerText(), /saved page was made without the program over time/);
  }, { problem: true });
  served.stop();
  without.stop();
});
