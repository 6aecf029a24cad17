// Opens reports in a real browser for the tests: serves them, watches the console and the requests, presses keys.
// The browser is what ABELE_BROWSER names, or the first Chromium or Chrome on PATH; `skip` says why there is none.

import assert from "node:assert/strict";
import { spawn, execFileSync } from "node:child_process";
import { accessSync, constants, existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after } from "node:test";
import { fileURLToPath } from "node:url";

const root = path.join(path.dirname(fileURLToPath(import.meta.url)), "../..");
const playwright = await import("playwright-core").catch(() => null);

/**
 * @typedef {import("playwright-core").Page} Page
 * @typedef {import("playwright-core").Locator} Locator
 * @typedef {{url: string, stop(): void, partial?: boolean}} Served what answers at `url`, which ends in a slash or holds a token;
 * a `partial` one lacks tables, which the viewer asks for before anybody does
 * @typedef {"protanopia" | "deuteranopia" | "tritanopia" | "achromatopsia"} Vision
 * @typedef {{dark?: boolean, still?: boolean, vision?: Vision, width?: number, height?: number, allow?: RegExp, problem?: boolean}} Options
 * `still`: motion reduced; `allow`: console errors that the test brings about; `problem`: the page shows an error.
 */

function browserPath() {
  const named = process.env.ABELE_BROWSER;
  const names = named ? [named] : ["chromium", "chromium-browser", "google-chrome"];
  const places = (process.env.PATH ?? "").split(path.delimiter);
  for (const name of names) {
    for (const file of path.isAbsolute(name) ? [name] : places.map((place) => path.join(place, name))) {
      try { accessSync(file, constants.X_OK); return file; } catch { /* the next one */ }
    }
  }
  return null;
}

const executable = browserPath();
/** For `test(name, { skip }, …)`: false, or why no browser can be driven. @type {false | string} */
export const skip = !playwright ? "viewer/node_modules is missing: `npm ci` in viewer" : !executable ? "no Chromium or Chrome: set ABELE_BROWSER" : false;
/** Where screenshots go, or null. `shot()` takes none without it. */
const album = process.env.ABELE_SCREENSHOTS || null;

/** @type {Promise<import("playwright-core").Browser> | null} */
let launched = null;
/** @type {(() => void)[]} */
const undo = [];
/** Ends what was started: at the end of the tests of a file by itself. */
export async function closeAll() {
  for (const each of undo.splice(0)) each();
  await (await launched)?.close();
  launched = null;
}
after(closeAll);

/** The browser of this test file, without anything that asks the network of its own accord. */
export function browser() {
  if (!playwright || !executable) throw new Error(String(skip));
  launched ??= playwright.chromium.launch({
    executablePath: executable,
    args: ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
      "--disable-default-apps", "--no-default-browser-check", "--disable-features=OptimizationHints,MediaRouter,Translate"],
  });
  return launched;
}

export function python() {
  const own = path.join(root, ".venv/bin/python");
  return process.env.ABELE_PYTHON ?? (existsSync(own) ? own : "python3");
}

export const environment = () => ({ ...process.env, PYTHONPATH: [path.join(root, "src"), root, process.env.PYTHONPATH].filter(Boolean).join(path.delimiter) });

/** A folder that is gone when the tests of this file are over. */
export function scratch() {
  const folder = mkdtempSync(path.join(tmpdir(), "abele-viewer-"));
  undo.push(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** The output of `python -m …` in the repository. @param {...string} words */
export const runPython = (...words) => execFileSync(python(), ["-m", ...words], { cwd: root, env: environment(), encoding: "utf8", maxBuffer: 2 ** 28 });

/** A synthetic report (tests/report/synthetic.py). @param {...string} options @returns {string} its file */
export function synthetic(...options) {
  const file = path.join(scratch(), "profile.pop");
  runPython("tests.report.synthetic", file, ...options);
  return file;
}

/** What Abele itself reads from a report: an expression of `report`, as JSON has it. @param {string} file @param {string} expression */
export function readBy(file, expression) {
  const text = `import json, sys; import numpy as np; from abele.report.store import Report; report = Report(sys.argv[1]); print(json.dumps(${expression}))`;
  return JSON.parse(execFileSync(python(), ["-c", text, file], { cwd: root, env: environment(), encoding: "utf8" }));
}

/** The report `file` behind Abele's own server. @param {string} file @param {...string} more options of `abele view` @returns {Promise<Served>} */
export async function serveStore(file, ...more) {
  const child = spawn(python(), ["-m", "abele", "view", file, "--port", "0", "--no-browser", "--json", ...more], { cwd: root, env: environment(), stdio: ["ignore", "pipe", "pipe"] });
  const stop = () => { child.kill(); };
  undo.push(stop);
  let said = "", complaint = "";
  child.stderr.on("data", (text) => { complaint += text; });
  const url = await new Promise((resolve, reject) => {
    child.stdout.on("data", (text) => {
      said += text;
      const end = said.indexOf("\n");
      if (end >= 0) try { resolve(JSON.parse(said.slice(0, end)).url); } catch (error) { reject(error); }
    });
    child.on("exit", (code) => reject(new Error(`abele view ended with ${code}: ${complaint || said}`)));
  });
  return { url, stop };
}

/**
 * Opens `hash` of what is served in a cold tab (a fresh profile), waits until its page is shown and hands it to `check`.
 * Fails when the console reports an error, a request goes elsewhere, or the page shows a problem that was not expected.
 * @param {Served} served @param {string} hash such as `#memory?tile=3` @param {(page: Page) => Promise<void>} check @param {Options} [options]
 */
export async function visit(served, hash, check, options = {}) {
  const context = await (await browser()).newContext({
    viewport: { width: options.width ?? 1280, height: options.height ?? 800 },
    colorScheme: options.dark ? "dark" : "light",
    reducedMotion: options.still ? "reduce" : "no-preference",
    permissions: served.url.startsWith("file:") ? [] : ["clipboard-read", "clipboard-write"],
  });
  try {
    const page = await context.newPage();
    /** @type {string[]} */
    const faults = [];
    const home = new URL(served.url);
    page.on("console", (message) => {
      const lacking = served.partial && /^Failed to load resource.* 404 /.test(message.text()) && /\/data\/p\//.test(message.location().url);
      if (message.type() === "error" && !lacking && !options.allow?.test(message.text())) faults.push("console: " + message.text() + " " + message.location().url);
    });
    page.on("pageerror", (error) => { if (!options.allow?.test(error.message)) faults.push("error: " + (error.stack ?? error.message)); });
    page.on("request", (request) => {
      const url = new URL(request.url());
      if (url.origin !== home.origin && !["data:", "blob:"].includes(url.protocol)) faults.push("request to " + request.url());
      if (home.protocol === "file:" && url.protocol === "file:" && url.pathname !== home.pathname) faults.push("request to " + request.url());
    });
    if (options.vision) await (await context.newCDPSession(page)).send("Emulation.setEmulatedVisionDeficiency", { type: options.vision });
    await page.goto(served.url.replace(/#.*$/, "") + hash);
    await shown(page, /^#([^?]+)/.exec(hash)?.[1] ?? "verdict");
    const problem = await page.locator(".problem").allTextContents();
    if (!options.problem) assert.deepEqual(problem, [], "the page shows a problem");
    await check(page);
    await frames(page);
    assert.deepEqual(faults, []);
  } finally {
    await context.close();
  }
}

/** Waits until the page of that name itself is there, not in brief, and drawn. @param {Page} page @param {string} name */
export async function shown(page, name) {
  await page.waitForFunction((name) => {
    const main = document.querySelector("main");
    return Boolean(main && !main.hasAttribute("aria-busy") && !main.hasAttribute("data-brief") && (document.documentElement.dataset.shown === name || document.querySelector(".problem")));
  }, name, { timeout: 60_000 });
  await frames(page);
}

/** Lets two frames pass: what was to be drawn is drawn. @param {Page} page */
export const frames = (page) => page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => resolve(null)))));

const PATIENCE = 5000; // ms in which a canvas is drawn, on a busy machine too

/** Fails when a canvas (by its label, or all that are in sight) holds one colour only. @param {Page} page @param {string} [label] part of it */
export async function painted(page, label) {
  let found = await colours(page, label);
  for (const begun = Date.now(); found.some((each) => each.colours < 2) && Date.now() - begun < PATIENCE;) {
    await frames(page);
    found = await colours(page, label);
  }
  assert.ok(found.length, "no canvas" + (label ? " of " + label : ""));
  for (const each of found) assert.ok(each.colours > 1, `the canvas "${each.label}" is blank`);
  return found;
}

/** How many colours each canvas has, up to eight. @param {Page} page @param {string} [label] */
const colours = (page, label) => page.evaluate((label) => [...document.querySelectorAll("main canvas")].filter((each) => each.clientWidth > 20 && (!label || each.getAttribute("aria-label")?.includes(label))).map((each) => {
    const canvas = /** @type {HTMLCanvasElement} */ (each);
    const { data } = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")).getImageData(0, 0, canvas.width, canvas.height);
    const colours = new Set();
    for (let i = 0; i < data.length && colours.size < 8; i += 4) colours.add((data[i] << 24) | (data[i + 1] << 16) | (data[i + 2] << 8) | data[i + 3]);
    return { label: canvas.getAttribute("aria-label"), colours: colours.size };
  }), label);

/** Presses Tab until what `selector` finds has the focus, as someone without a mouse does. @param {Page} page @param {string} selector @param {number} [most] */
export async function tabTo(page, selector, most = 60) {
  for (let i = 0; i < most; i++) {
    if (await page.evaluate((selector) => Boolean(document.activeElement?.matches(selector)), selector)) return;
    await page.keyboard.press("Tab");
  }
  assert.fail(`Tab does not reach ${selector} in ${most} steps`);
}

/** Presses keys one after another. @param {Page} page @param {...string} keys */
export async function press(page, ...keys) {
  for (const key of keys) await page.keyboard.press(key);
  await frames(page);
}

/** What the page says to those who do not see it. @param {Page} page */
export const said = (page) => page.locator("#said").textContent();

/** @type {Vision[]} */
export const visions = ["protanopia", "deuteranopia", "tritanopia", "achromatopsia"];

/** Fails when two of the elements look the same, pixel by pixel, to the eyes that `vision` of `visit` stands for.
 * @param {Page} page @param {Locator} swatches of one size, such as the boxes of a legend @param {number} [least] mean difference of a channel, of 255 */
export async function toldApart(page, swatches, least = 6) {
  const shots = [];
  for (const each of await swatches.all()) shots.push((await each.screenshot()).toString("base64"));
  assert.ok(shots.length > 1, "less than two to tell apart");
  const closest = await page.evaluate(async (shots) => {
    /** @type {Uint8ClampedArray[]} */
    const pixels = [];
    for (const shot of shots) {
      const image = await createImageBitmap(new Blob([Uint8Array.from(atob(shot), (c) => c.charCodeAt(0))]));
      const g = /** @type {OffscreenCanvasRenderingContext2D} */ (new OffscreenCanvas(12, 12).getContext("2d"));
      g.drawImage(image, 0, 0);
      pixels.push(g.getImageData(0, 0, 12, 12).data);
    }
    let [closest, which] = [Infinity, ""];
    for (let a = 0; a < pixels.length; a++) for (let b = 0; b < a; b++) {
      const difference = pixels[a].reduce((sum, x, i) => sum + Math.abs(x - pixels[b][i]), 0) / pixels[a].length;
      if (difference < closest) [closest, which] = [difference, `${b} and ${a}`];
    }
    return { closest, which };
  }, shots);
  assert.ok(closest.closest >= least, `${closest.which} differ by ${closest.closest.toFixed(1)} only`);
}

/** A picture for a person to look at, where ABELE_SCREENSHOTS names a folder. @param {Page} page @param {string} name */
export async function shot(page, name) {
  if (!album) return;
  mkdirSync(album, { recursive: true });
  await page.screenshot({ path: path.join(album, name + ".png") });
}
