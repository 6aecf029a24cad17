// How fast page Memory draws the tiles of 64 IPUs: `node viewer/tests/speed_memory.js` prints medians and fails beyond
// twice the goal. Each turn is a fresh page that has shown the verdict, and asks for the tiles for the first time.

import path from "node:path";
import { fileURLToPath } from "node:url";
import { browser, runPython, scratch, serveStore, shown, skip } from "./harness.js";

const TURNS = 7;

/** @typedef {{name: string, goal: number, hash: string, first?: boolean}} Row `goal` in ms; `first`: the page was not there before, else it was, as a whole */

/** @type {Row[]} */
export const rows = [
  { name: "memory of 94,208 tiles, columns", goal: 200, hash: "#memory", first: true },
  { name: "memory of 94,208 tiles, chip map", goal: 200, hash: "#memory?view=as%3Dmap", first: true },
  { name: "memory of 94,208 tiles at one moment", goal: 200, hash: "#memory?from=300&to=300" },
];

/** Milliseconds from a change of the address until its page is drawn. @param {import("playwright-core").Page} page @param {string} hash */
export const timeOf = (page, hash) => page.evaluate(async (hash) => {
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve)), start = performance.now();
  const name = hash.slice(1).split("?")[0], root = document.documentElement;
  if (root.dataset.shown !== name) root.dataset.shown = "";
  const changed = new Promise((resolve) => addEventListener("hashchange", resolve, { once: true }));
  location.hash = hash;
  await changed;
  while (root.dataset.shown !== name || document.querySelector("main")?.hasAttribute("aria-busy")) await frame();
  await frame();
  return performance.now() - start;
}, hash);

/** The median of each row in ms, on a report of 64 IPUs. @returns {Promise<{name: string, goal: number, median: number}[]>} */
export async function measured() {
  const file = path.join(scratch(), "tiles.pop");
  runPython("tests.report.synthetic", file, "--ipus", "64", "--operations", "5000");
  const served = await serveStore(file), found = [];
  for (const { name, goal, hash, first } of rows) {
    const times = [];
    for (let i = 0; i < TURNS; i++) {
      const page = await (await browser()).newPage({ viewport: { width: 1280, height: 800 } });
      await page.goto(served.url);
      await shown(page, "verdict");
      if (!first) { await timeOf(page, "#memory"); await page.waitForSelector("main [data-ready]"); }
      times.push(await timeOf(page, hash));
      await page.close();
    }
    found.push({ name, goal, median: times.sort((a, b) => a - b)[TURNS >> 1] });
  }
  served.stop();
  return found;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (skip) console.log("skipped: " + skip);
  else {
    for (const { name, goal, median } of await measured()) {
      console.log(`${name}: ${median.toFixed(0)} ms, goal ${goal}`);
      if (median > 2 * goal) process.exitCode = 1;
    }
    process.exit();
  }
}
