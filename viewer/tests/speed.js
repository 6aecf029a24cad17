// How fast the viewer is, in headless Chromium: `node tests/speed.js FOLDER ROUNDS OUT` measures with the reports that
// benchmarks/viewer.py puts into FOLDER and writes medians as JSON. `python -m benchmarks viewer` calls it.
// Times are from the deed to the frame in which all of it is drawn, the wait for that frame included.

import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { browser, closeAll, serveStore, shown, skip } from "./harness.js";

const NOTHING = 75; // exit status of a machine without a browser (benchmarks/viewer.py)

/**
 * @typedef {import("playwright-core").Page} Page
 * @typedef {{name: string, value: number, limit: number, unit: "ms" | "MB" | "KB", rounds: number}} Measured
 */

const [folder, asked, out] = process.argv.slice(2), rounds = Number(asked);
const FIRST_PAINT = 1000, PAGE_CHANGE = 150; // ms
const pages = ["memory", "liveness", "operations", "timeline", "exchange", "verdict"];
const served = new Map();

/** @param {string} report */
async function url(report) {
  if (!served.has(report)) served.set(report, (await serveStore(path.join(folder, report + ".pop"))).url.replace(/#.*$/, ""));
  return served.get(report);
}

/** @param {number[]} values */
const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];

/** What of a page is waited for: its picture, which is heads, totals and charts, of a large program from what the store has in brief;
 * or all of it, long lists and what they say of one tile included. @typedef {"picture" | "all"} What */
const AWAITED = { picture: "main[aria-busy], main [aria-busy]:not([data-later])", all: "main[aria-busy], main[data-brief], main [aria-busy]" };

/** Milliseconds until the picture of an address is shown in a cold tab, and drawn. @param {string} report @param {string} hash @param {string} [sign] what must be there, too: then of the page itself, not in brief
 * @param {(page: Page) => Promise<number>} [then] to be measured straight after it instead */
async function cold(report, hash, sign, then) {
  const context = await (await browser()).newContext({ viewport: { width: 1280, height: 800 } });
  const page = await context.newPage();
  await page.goto((await url(report)) + hash);
  await page.waitForFunction((sign) => document.documentElement.dataset.shown && (!sign || (document.querySelector(sign) && !document.querySelector("main[data-brief]"))), sign ?? "");
  const time = then ? await then(page) : await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now())))));
  await context.close();
  return Number(time);
}

/** A tab that stays, for what is measured in it. @param {string} report @param {string} hash @param {(page: Page) => Promise<void>} use */
async function warm(report, hash, use) {
  const context = await (await browser()).newContext({ viewport: { width: 1280, height: 800 } });
  const page = await context.newPage();
  await page.goto((await url(report)) + hash);
  await shown(page, /^#(\w+)/.exec(hash)?.[1] ?? "verdict");
  await use(page);
  await context.close();
}

/** Milliseconds from a change of the address to the page that it names, drawn. A chart is drawn
 * in the frame after the one in which it is given its place, and so a page is there when nothing is awaited in three of them.
 * @param {Page} page @param {string} hash @param {What} [what] */
const changed = (page, hash, what = "all") => page.evaluate(([hash, awaited]) => new Promise((resolve) => {
  const name = /^#(\w+)/.exec(hash)?.[1], begun = performance.now();
  let calm = 0;
  const look = () => {
    calm = document.documentElement.dataset.shown !== name || document.querySelector(awaited) ? 0 : calm + 1;
    if (calm < 3) requestAnimationFrame(look);
    else resolve(performance.now() - begun);
  };
  location.hash = hash;
  requestAnimationFrame(look);
}), [hash, AWAITED[what]]).then(Number);

/** Milliseconds of a search, from the last letter to the rows. @param {Page} page @param {string} text */
const searched = (page, text) => page.evaluate((text) => new Promise((resolve) => {
  const field = /** @type {HTMLInputElement} */ (document.querySelector("main input[type=search]")), begun = performance.now();
  field.value = text;
  field.dispatchEvent(new Event("input"));
  requestAnimationFrame(() => resolve(performance.now() - begun));
}), text).then(Number);

/** Milliseconds from a key on the raster of page Timeline, or from a wheel that moves it by so many pixels, to its picture.
 * @param {Page} page @param {string | number} deed */
const pressed = (page, deed) => page.evaluate(async (deed) => {
  const canvas = /** @type {HTMLCanvasElement} */ (document.querySelector("main canvas[aria-label^='Tiles from top']")), frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  canvas.focus();
  await frame();
  await frame();
  const begun = performance.now();
  canvas.dispatchEvent(typeof deed === "string" ? new KeyboardEvent("keydown", { key: deed, bubbles: true }) : new WheelEvent("wheel", { deltaX: deed, bubbles: true, cancelable: true }));
  await frame();
  return performance.now() - begun;
}, deed).then(Number);

/** @param {() => Promise<number>} once */
async function repeated(once) {
  const times = [];
  for (let i = 0; i < rounds; i++) times.push(await once());
  return median(times);
}

/** @type {(() => Promise<Measured[]>)[]} */
const measures = [
  async () => {
    /** @type {Measured[]} */
    const found = [{ name: "first paint of the verdict, 300,000 operations", value: await repeated(() => cold("large", "")), limit: FIRST_PAINT, unit: "ms", rounds }];
    const others = pages.filter((name) => name !== "verdict"), once = others.map(() => /** @type {number[]} */ ([]));
    for (let i = 0; i < rounds; i++) {
      await warm("large", "", async (page) => {
        await page.waitForFunction(() => document.documentElement.dataset.ahead, null, { timeout: 120_000 });
        for (const [k, name] of others.entries()) once[k].push(await changed(page, "#" + name));
      });
    }
    for (const [k, name] of others.entries()) found.push({ name: `first change to the page ${name}, 300,000 operations`, value: median(once[k]), limit: PAGE_CHANGE, unit: "ms", rounds });
    for (const name of others) {
      const straight = (/** @type {What} */ what) => repeated(() => cold("large", "", "", (page) => changed(page, "#" + name, what)));
      found.push({ name: `first change to the page ${name}, 300,000 operations, straight after the first paint`, value: await straight("picture"), limit: PAGE_CHANGE, unit: "ms", rounds });
      found.push({ name: `first change to the page ${name}, 300,000 operations, straight after the first paint, all of it`, value: await straight("all"), limit: FIRST_PAINT, unit: "ms", rounds });
      found.push({ name: `a link to the page ${name}, 300,000 operations, in a cold tab`, value: await repeated(() => cold("large", "#" + name)), limit: FIRST_PAINT, unit: "ms", rounds });
    }
    return found;
  },
  async () => [{ name: "list of 30,000 operations, cold", value: await repeated(() => cold("middle", "#operations", ".grid-row")), limit: 1000, unit: "ms", rounds }],
  async () => [{ name: "graph of 5,000 operations, cold, all layers unfolded", value: await repeated(() => cold("small", "#operations?view=as%3Dgraph%26graph%3Dall", ".graph canvas")), limit: 2000, unit: "ms", rounds }],
  async () => {
    /** @type {Measured[]} */
    const found = [];
    await warm("large", "#operations", async (page) => {
      const words = ["softmax", "layer.1", "model.py:12", "/^(conv|map)$/", "encoder", "nothing at all", "e"], times = [];
      await searched(page, "warm");
      for (let i = 0; i < rounds; i++) for (const word of words) times.push(await searched(page, word));
      found.push({ name: "filter of 300,000 operations", value: median(times), limit: 50, unit: "ms", rounds: times.length });
      await page.keyboard.press("Escape");
      for (const name of pages) await changed(page, "#" + name);
      for (const name of pages) {
        const times = [];
        for (let i = 0; i < rounds; i++) {
          await changed(page, name === "verdict" ? "#operations" : "#verdict");
          times.push(await changed(page, "#" + name));
        }
        found.push({ name: `change to the page ${name}, 300,000 operations, seen before`, value: median(times), limit: PAGE_CHANGE, unit: "ms", rounds });
      }
      const session = await page.context().newCDPSession(page);
      await session.send("HeapProfiler.collectGarbage");
      const heap = /** @type {any} */ (await session.send("Runtime.getHeapUsage"));
      found.push({ name: "heap after all pages, with the buffers of 300,000 operations", value: (heap.usedSize + (heap.embedderHeapUsedSize ?? 0) + (heap.backingStorageSize ?? 0)) / 1e6, limit: 500, unit: "MB", rounds: 1 });
    });
    return found;
  },
  async () => {
    const row = (/** @type {string} */ what, /** @type {number} */ value) => /** @type {Measured} */ ({ name: `memory of 94,208 tiles, ${what}`, value, limit: 200, unit: "ms", rounds });
    const first = (/** @type {string} */ hash) => repeated(async () => { let time = 0; await warm("wide", "", async (page) => { time = await changed(page, hash); }); return time; });
    const found = [row("columns, asked for the first time", await first("#memory")), row("chip map, asked for the first time", await first("#memory?view=as%3Dmap"))];
    await warm("wide", "#memory", async (page) => {
      await page.waitForSelector("main [data-ready]");
      let moment = 300;
      found.push(row("from one moment to another", await repeated(() => changed(page, `#memory?from=${++moment}&to=${moment}`))));
    });
    return found;
  },
  async () => {
    /** @type {Measured[]} */
    const found = [];
    await warm("raster", "#timeline", async (page) => {
      const pans = [], zooms = [];
      for (let i = 0; i < rounds; i++) {
        for (const key of ["w", "w", "s", "s"]) zooms.push(await pressed(page, key));
        await pressed(page, "w");
        for (const key of ["d", "a"]) pans.push(await pressed(page, key));
        for (const pixels of [30, -60, 30]) pans.push(await pressed(page, pixels));
        await pressed(page, "0");
      }
      const moments = "raster of 1,472 tiles × 20,000 moments, and the lanes above it";
      found.push({ name: "pan of a " + moments, value: median(pans), limit: 50, unit: "ms", rounds: pans.length }, { name: "zoom of a " + moments, value: median(zooms), limit: 100, unit: "ms", rounds: zooms.length });
    });
    return found;
  },
  async () => {
    const bundle = path.join(path.dirname(fileURLToPath(import.meta.url)), "../../src/abele/report/static");
    const size = ["viewer.js", "viewer.css"].reduce((sum, name) => sum + gzipSync(readFileSync(path.join(bundle, name))).length, 0);
    return [{ name: "script and style, compressed", value: size / 1024, limit: 120, unit: "KB", rounds: 1 }];
  },
];

if (skip) {
  console.error(skip);
  process.exit(NOTHING);
}
/** @type {Measured[]} */
const found = [];
for (const measure of measures) found.push(...await measure());
writeFileSync(out, JSON.stringify(found));
await closeAll();
process.exit(0);
