// Synthetic reports (tests/report/synthetic.py) behind Abele's own server, real ones, and what their store says.

import path from "node:path";
import { frames, runPython, scratch, serveStore, skip } from "./harness.js";
import { summaryOf, tableOf } from "./tables.js";

/** @typedef {import("playwright-core").Page} Page */

const folder = skip ? "" : scratch();
/** @type {Map<string, Promise<import("./harness.js").Served>>} */
const made = new Map();

/** The report of these options, made and served once. @param {...string} options */
export function synthetic(...options) {
  const name = options.join("").replaceAll("-", "");
  const known = made.get(name) ?? (async () => {
    const file = path.join(folder, name + ".pop");
    runPython("tests.report.synthetic", file, ...options);
    return serveStore(file);
  })();
  made.set(name, known);
  return known;
}

/** The report of a program that is compiled for it: `abele profile` with these words. @param {...string} words */
export function profiled(...words) {
  const name = words.join("").replaceAll("-", "");
  const known = made.get(name) ?? (async () => {
    runPython("abele", "profile", ...words, "--report", path.join(folder, name));
    return serveStore(path.join(folder, name, "profile.pop"));
  })();
  made.set(name, known);
  return known;
}

/** What the store has under `name`: JSON of `summary`, else a table. @param {Page} page @param {string} name @returns {Promise<any>} */
export const stored = (page, name) => (name === "summary" ? summaryOf(page) : tableOf(page, name));

/** Waits for the part of a page that comes later. @param {Page} page */
export async function whole(page) {
  await page.waitForSelector("main [data-ready]");
  await frames(page);
}

/** The cells of a grid's rows in sight. @param {Page} page @param {string} label */
export const rowsOf = (page, label) => page.locator(`[aria-label="${label}"] .grid-row`).evaluateAll((rows) => rows.map((row) => [...row.children].map((cell) => cell.textContent ?? "")));
