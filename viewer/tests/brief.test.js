// Large programs: a page shows its picture from what the store has in brief, then itself; and what is asked for comes first.

import assert from "node:assert/strict";
import test from "node:test";
import { frames, shown, skip, visit } from "./harness.js";
import { synthetic } from "./synthetic.js";

/** @typedef {import("playwright-core").Page} Page @typedef {import("playwright-core").Route} Route */

const large = () => synthetic("--operations", "20000", "--ipus", "2");
const PAGES = ["operations", "timeline", "exchange", "liveness"];

/** Holds back tables, of program 0 every one that is not in brief. @param {Page} page @param {RegExp} [which] */
async function holdBack(page, which = /\/data\/p\/0\/(?!brief|summary|tiles)/) {
  /** @type {Route[]} */
  const held = [];
  let open = false;
  await page.route(which, (route) => { if (open) route.continue(); else held.push(route); });
  return { held, release: () => { open = true; for (const route of held.splice(0)) route.continue().catch(() => {}); } };
}

/** Waits for the page in brief, or (`whole`) itself with all that comes late. @param {Page} page @param {string} name @param {boolean} whole */
async function there(page, name, whole) {
  await page.waitForFunction(([name, whole]) => document.documentElement.dataset.shown === name && Boolean(document.querySelector("main[data-brief]")) !== whole
    && !document.querySelector(whole ? "main[aria-busy], main [aria-busy]" : "main[aria-busy], main [aria-busy]:not([data-later])"), /** @type {[string, boolean]} */ ([name, whole]));
  await frames(page);
  await frames(page);
}

/** What is told above the part that comes late, and what each canvas there shows, in 200 × 50 cells: the list of page Liveness takes some pixels of its chart. @param {Page} page */
const seen = (page) => page.evaluate(() => {
  const text = document.querySelector("main")?.innerText ?? "";
  const canvases = [...document.querySelectorAll("main canvas")].filter((canvas) => canvas.getBoundingClientRect().top < innerHeight).map((each) => {
    const small = new OffscreenCanvas(200, 50), g = /** @type {OffscreenCanvasRenderingContext2D} */ (small.getContext("2d"));
    g.drawImage(/** @type {HTMLCanvasElement} */ (each), 0, 0, small.width, small.height);
    return { label: each.getAttribute("aria-label"), pixels: [...g.getImageData(0, 0, small.width, small.height).data] };
  });
  return { text, canvases };
});

for (const name of PAGES) {
  test(`page ${name} in brief says and shows what the page itself does`, { skip }, async () => {
    await visit(await large(), "", async (page) => {
      const { held, release } = await holdBack(page);
      await page.evaluate((name) => { location.hash = "#" + name; }, name);
      await there(page, name, false);
      const brief = await seen(page);
      assert.equal(await page.locator("main .chart:not([inert])").count(), 0, "a chart tells of sums as of single ones");
      assert.ok(held.length, "nothing was held back");
      release();
      await there(page, name, true);
      const whole = await seen(page), late = /Who lives when|Exchange by operation|Pipeline body|· Operation |^Operations? /m;
      assert.equal(brief.text.split(late)[0].trim(), whole.text.split(late)[0].trim());
      assert.deepEqual(brief.canvases.map(({ label }) => label), whole.canvases.map(({ label }) => label));
      for (const [i, { label, pixels }] of brief.canvases.entries()) {
        const other = whole.canvases[i].pixels;
        const apart = pixels.reduce((sum, value, k) => sum + Math.abs(value - other[k]), 0) / pixels.length;
        assert.ok(apart < 6, `${label}: a channel differs by ${apart.toFixed(1)} of 255 in the mean`);
      }
    });
  });
}

test("what is done to a page in brief is done to the page itself", { skip }, async () => {
  await visit(await large(), "", async (page) => {
    const { release } = await holdBack(page);
    await page.evaluate(() => { location.hash = "#operations"; });
    await there(page, "operations", false);
    await page.locator("main input[type=search]").focus();
    await page.keyboard.type("softmax");
    release();
    await there(page, "operations", true);
    assert.equal(await page.locator("main input[type=search]").inputValue(), "softmax");
    assert.ok(await page.evaluate(() => document.activeElement?.matches("input[type=search]")), "the focus is lost");
    assert.match(await page.locator('[aria-label="Operations"] .grid-row').first().innerText(), /softmax/);
  });
});

test("what is chosen is never shown in brief", { skip }, async () => {
  await visit(await large(), "#operations?search=softmax", async (page) => {
    assert.equal(await page.locator("main[data-brief]").count(), 0);
    assert.match(await page.locator('[aria-label="Operations"] .grid-row').first().innerText(), /softmax/);
  });
});

test("a page that is asked for does not wait for what is fetched ahead", { skip }, async () => {
  await visit(await large(), "#exchange", async (page) => {
    /** @type {string[]} */
    const told = [];
    const name = (/** @type {import("playwright-core").Request} */ request) => new URL(request.url()).pathname.replace("/data/p/0/", "");
    const held = await holdBack(page, /\/data\/p\/0\/tensors/);
    await page.reload();
    await shown(page, "exchange");
    page.on("request", (request) => { told.push(name(request)); });
    page.on("requestfailed", (request) => { told.push("given up: " + name(request)); });
    while (!held.held.length) await page.waitForTimeout(10); // fetched ahead, for page Memory
    await page.evaluate(() => { location.hash = "#operations"; });
    await there(page, "operations", true);
    const given = told.indexOf("given up: tensors"), asked = told.indexOf("sets");
    assert.ok(given >= 0, "tensors are fetched on: " + told.join(", "));
    assert.ok(asked < 0 || given < asked, told.join(", "));
    held.release();
    await page.evaluate(() => { location.hash = "#memory"; });
    await there(page, "memory", true);
    assert.ok(told.filter((each) => each === "tensors").length >= 2, "tensors are not asked for again: " + told.join(", "));
  });
});
