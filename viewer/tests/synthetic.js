// Synthetic reports (tests/report/synthetic.py) behind Abele's own server, real ones, and what their store says.

import path from "node:path";
import { frames, runPython, scratch, serveStore, skip } from "./harness.js";
import { decode } from "../src/packet.js";

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

/** What the store has under `name`, fetched as the page does: JSON of `summary`, else a table. @param {Page} page @param {string} name */
export async function stored(page, name) {
  const text = await page.evaluate(async (name) => {
    const token = document.querySelector("meta[name=token]")?.getAttribute("content") ?? "";
    const answer = await fetch("data/p/0/" + name, { headers: { "X-Abele-Token": token } });
    let found = "";
    for (const byte of new Uint8Array(await answer.arrayBuffer())) found += String.fromCharCode(byte);
    return btoa(found);
  }, name);
  const data = Buffer.from(text, "base64");
  return name === "summary" ? JSON.parse(data.toString()) : decode(data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength));
}

/** What a server holds of program 0 by name, to be changed and served again. @param {import("./harness.js").Served} served @param {string[]} tables */
export async function heldBy(served, tables) {
  const html = await (await fetch(served.url)).text(), token = /name="token" content="([^"]*)"/.exec(html)?.[1] ?? "";
  const got = await Promise.all(["index", "p/0/summary", ...tables.map((name) => "p/0/" + name)].map(async (name) => {
    const answer = await fetch(new URL("data/" + name, served.url), { headers: { "X-Abele-Token": token } });
    return [name, new Uint8Array(await answer.arrayBuffer())];
  }));
  return /** @type {Record<string, Uint8Array>} */ (Object.fromEntries(got));
}

/** Waits for the part of a page that comes later. @param {Page} page */
export async function whole(page) {
  await page.waitForSelector("main [data-ready]");
  await frames(page);
}

/** The cells of a grid's rows in sight. @param {Page} page @param {string} label */
export const rowsOf = (page, label) => page.locator(`[aria-label="${label}"] .grid-row`).evaluateAll((rows) => rows.map((row) => [...row.children].map((cell) => cell.textContent ?? "")));
