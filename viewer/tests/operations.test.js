// The page Operations, of reports by Abele's own writer and server.

import assert from "node:assert/strict";
import { before, test } from "node:test";
import { frames, painted, press, readBy, said, serveStore, shot, skip, synthetic, tabTo, visit } from "./harness.js";

/** @type {import("./harness.js").Served} */
let served;
/** @type {any} */
let store;
before(async () => {
  if (skip) return;
  const file = synthetic("--operations", "120", "--ipus", "2", "--tiles", "64");
  store = readBy(file, `(lambda t, n: {
    "cycles": float(sum(n("cycles")[i] * n("times")[i] for i in range(t.count) if t.words("kind")[i] not in ("call", "repeat"))),
    "softmax": sum(name == "softmax" for name in t.words("name")), "keys": t.words("key"), "kinds": t.words("kind"), "names": t.words("name"), "lines": n("line").tolist()})(report.table("operations", 0), report.table("operations", 0).numbers)`);
  served = await serveStore(file);
});

const rows = (/** @type {import("playwright-core").Page} */ page) => page.locator(".operations-main .note").first().innerText();

test("its total is the store's, whatever it is grouped by", { skip }, async () => {
  for (const group of ["layer", "operation", "line", "vertex", "program"]) {
    await visit(served, `#operations?view=group%3D${group}%26open%3Dnone`, async (page) => {
      const text = await page.locator("aside").innerText();
      assert.ok(text.includes(Math.round(store.cycles).toLocaleString("en")), `${group}: ${text}`);
      const shares = await page.locator(".grid-row[aria-level='1'] > div:nth-child(3)").allInnerTexts();
      assert.ok(Math.abs(shares.reduce((sum, share) => sum + parseFloat(share.replace("< ", "")), 0) - 100) < 1.5, `${group}: ${shares}`);
    });
  }
});

test("a link to an operation opens on it in a cold tab, with the user's line", { skip }, async () => {
  const at = store.names.lastIndexOf("softmax"), key = store.keys[at];
  await visit(served, "#operations?operation=" + encodeURIComponent(key), async (page) => {
    assert.match(await page.locator(".grid-row[aria-selected=true]").innerText(), /softmax/);
    assert.match(await page.locator("aside h2").first().innerText(), /softmax/);
    await page.locator("aside .source .here").waitFor();
    assert.match(await page.locator("aside .source .here").innerText(), new RegExp(`^\\s*${store.lines[at]} `));
    assert.ok((await page.locator("aside").innerText()).includes(key));
    await painted(page);
    await shot(page, "operations");
  });
});

test("search finds names, lines and expressions, and says what is none", { skip }, async () => {
  await visit(served, "#operations", async (page) => {
    await press(page, "/");
    await page.keyboard.type("softmax");
    await frames(page);
    assert.equal(await rows(page), `${store.softmax} rows`);
    assert.match(page.url(), /search=softmax/);
    await page.locator("input[type=search]").fill("/^soft.*x$/");
    await frames(page);
    assert.equal(await rows(page), `${store.softmax} rows`);
    await page.locator("input[type=search]").fill("/(/");
    await frames(page);
    assert.match(await page.locator(".tools .bad").innerText(), /no regular expression/);
    await page.locator("input[type=search]").fill("model.py:12");
    await frames(page);
    assert.equal(await rows(page), `${store.lines.filter((/** @type {number} */ line) => line === 12).length} rows`);
    await press(page, "Escape");
    assert.doesNotMatch(page.url(), /search/);
  });
});

test("the keyboard alone unfolds the tree, chooses, sorts and zooms the flame", { skip }, async () => {
  await visit(served, "#operations", async (page) => {
    await tabTo(page, "canvas[aria-label^='Layers by']");
    await press(page, "ArrowDown");
    assert.match((await said(page)) ?? "", /model|all/);
    await press(page, "Enter");
    assert.match(page.url(), /flame/);
    await tabTo(page, "[role=treegrid]");
    await press(page, "Home");
    const first = page.locator(".grid-row[aria-selected=true]");
    if ((await first.getAttribute("aria-expanded")) === "true") await press(page, "ArrowLeft");
    assert.equal(await first.getAttribute("aria-expanded"), "false");
    const folded = await rows(page);
    await press(page, "ArrowRight", "j");
    assert.notEqual(await rows(page), folded);
    assert.equal(await first.getAttribute("aria-level"), "2");
    await press(page, "ArrowLeft");
    if ((await first.getAttribute("aria-level")) === "2") await press(page, "ArrowLeft");
    assert.equal(await first.getAttribute("aria-level"), "1");
    const columns = page.locator("[role=columnheader]");
    await columns.nth(4).locator("button").focus();
    await press(page, "Enter");
    assert.equal(await columns.nth(4).getAttribute("aria-sort"), "descending");
    assert.match(page.url(), /by%3Dbytes/);
  }, { still: true });
});

test("the flame is of cycles, bytes or flops, and has a table", { skip }, async () => {
  await visit(served, "#operations?view=measure%3Dflops", async (page) => {
    await painted(page, "Layers by");
    await page.locator(".flame summary").click();
    await page.locator(".flame table").waitFor();
    assert.match(await page.locator(".flame table").innerText(), /FLOP/);
    await shot(page, "operations-dark");
  }, { dark: true });
});

test("the graph: folded layers, walked by keyboard, the choice shared, and a table", { skip }, async () => {
  await visit(served, "#operations?view=as%3Dgraph", async (page) => {
    await page.locator("canvas[aria-label^='Flow of data']").waitFor();
    await frames(page);
    await painted(page, "Flow of data");
    const boxes = () => page.locator(".graph > .note").first().innerText();
    const before = await boxes();
    await page.locator("button:text('All layers')").click();
    await frames(page);
    const steps = store.kinds.filter((/** @type {string} */ kind) => kind === "step").length;
    assert.match(await boxes(), new RegExp(`^${steps} boxes, .*; 2 without an arrow`));
    assert.notEqual(await boxes(), before);
    await tabTo(page, "canvas[aria-label^='Flow of data']");
    await press(page, "ArrowDown", "ArrowDown");
    assert.match((await said(page)) ?? "", /reads from \d+ .*is read by \d+/s);
    await press(page, "ArrowDown", "Enter");
    assert.match(page.url(), /operation=/);
    await page.locator("aside code").waitFor();
    await page.locator(".graph summary").click();
    await page.locator(".graph table tbody tr").nth(10).waitFor();
    await shot(page, "operations-graph");
  });
});

test("hostile names are text, here too", { skip }, async () => {
  const hostile = await serveStore(synthetic("--operations", "40", "--tiles", "64", "--hostile"));
  await visit(hostile, "#operations?view=open%3Dall", async (page) => {
    assert.ok(await page.locator(".grid-row").count());
    assert.equal(await page.locator("main img, main script, main svg").count(), 0);
    assert.notEqual(await page.title(), "owned");
    await page.locator(".grid-row").nth(3).click();
    await frames(page);
    assert.equal(await page.locator("aside img, aside script, aside svg").count(), 0);
  });
  hostile.stop();
});

test("a program that does nothing has a page of nothing", { skip }, async () => {
  const empty = await serveStore(synthetic("--empty", "--tiles", "64"));
  await visit(empty, "#operations", async (page) => {
    assert.match(await page.locator("aside").innerText(), /operations\s+2/);
  });
  empty.stop();
});
