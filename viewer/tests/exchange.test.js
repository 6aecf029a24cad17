// Page Exchange: the bytes that it shows are the store's, for the whole program, an operation and a range.

import assert from "node:assert/strict";
import { test } from "node:test";
import { painted, press, said, shot, skip, tabTo, visions, visit } from "./harness.js";
import { stored, synthetic } from "./synthetic.js";

/** @typedef {import("playwright-core").Page} Page */

const GROUPS = "Bytes from each group", IPUS = "Bytes from each IPU";
const canvas = (/** @type {Page} */ page, /** @type {string} */ label) => page.locator(`main canvas[aria-label^="${label}"]`);
const plain = (/** @type {number} */ x) => Math.round(x).toLocaleString("en");
/** Bytes as they are shown. @param {string} text */
const parsed = (text) => { const [, number, unit] = /([\d.,]+) (GiB|MiB|KiB|B)/.exec(text) ?? ["", "0", "B"]; return Number(number.replaceAll(",", "")) * { GiB: 2 ** 30, MiB: 2 ** 20, KiB: 2 ** 10, B: 1 }[/** @type {"B"} */ (unit)]; };
/** The address as the page has it. @param {Page} page */
const address = (page) => page.evaluate(() => location.href);
const near = (/** @type {number} */ a, /** @type {number} */ b) => assert.ok(Math.abs(a - b) <= 0.01 * Math.max(a, b), `${a} and ${b}`);

const two = () => synthetic("--ipus", "2", "--operations", "240"), pod = () => synthetic("--ipus", "64", "--operations", "1536", "--tiles", "64");
const tableOf = /** @type {(page: Page, name: string) => Promise<import("../src/packet.js").Table>} */ (stored);

/** Traffic of operations by weight, added up here from the tables. @param {Page} page @param {(i: number) => number} weight */
async function traffic(page, weight) {
  const [operations, rows] = await Promise.all(["operations", "traffic"].map((name) => tableOf(page, name)));
  const like = operations.numbers("like"), counts = new Map(), cells = new Map(), of = (/** @type {string} */ name) => rows.numbers(name);
  for (let i = 0; i < operations.count; i++) counts.set(like[i], (counts.get(like[i]) ?? 0) + weight(i));
  let total = 0;
  for (let i = 0; i < rows.count; i++) {
    if (of("links")[i]) continue;
    const bytes = of("bytes")[i] * (counts.get(of("operation")[i]) ?? 0), cell = [32 * of("source_ipu")[i] + of("source_group")[i], 32 * of("target_ipu")[i] + of("target_group")[i]].join("-");
    total += bytes;
    if (bytes) cells.set(cell, (cells.get(cell) ?? 0) + bytes);
  }
  return { total, cells, operations };
}

test("totals are the store's, whichever way they are added up", { skip }, async () => {
  await visit(await two(), "#exchange", async (page) => {
    await painted(page);
    const { operations, ...whole } = await traffic(page, () => 0), sum = (/** @type {string} */ name) => { let all = 0; for (let i = 0; i < operations.count; i++) if (!["call", "repeat"].includes(operations.words("kind").at(i))) all += operations.numbers(name)[i] * operations.numbers("times")[i]; return all; };
    assert.equal(whole.total, 0);
    const cards = await page.locator(".cards").innerText();
    for (const name of ["exchange_bytes", "link_bytes"]) assert.ok(cards.includes(plain(sum(name)) + " B in a run"), name);
    const all = await traffic(page, (i) => operations.numbers("times")[i]);
    near(parsed(String(await page.locator(".tools .note").first().textContent())), all.total);
    assert.match(String(await page.locator(".tools .note").first().textContent()), new RegExp(`between ${plain(all.cells.size)} pairs`));
    near(all.total, sum("exchange_bytes"));
    const rows = (await page.locator(".grid .note").textContent()) ?? "";
    let exchanging = 0;
    for (let i = 0; i < operations.count; i++) if (!["call", "repeat"].includes(operations.words("kind").at(i)) && ["exchange", "links", "exchange_bytes", "link_bytes"].some((name) => operations.numbers(name)[i])) exchanging++;
    assert.equal(rows, plain(exchanging) + " rows");
    await shot(page, "exchange");
  });
});

test("with keys alone: the largest cell, what it is for, an operation, the range", { skip }, async () => {
  await visit(await two(), "#exchange?from=20&to=60", async (page) => {
    const { operations } = await traffic(page, () => 0), times = operations.numbers("times");
    await tabTo(page, `canvas[aria-label^="${GROUPS}"]`);
    await press(page, "m");
    const all = await traffic(page, (i) => times[i]), [largest, most] = [...all.cells].sort((a, b) => b[1] - a[1])[0];
    near(parsed(String(await said(page))), most);
    await press(page, "Enter");
    assert.ok((await address(page)).includes("cell%3D" + largest), await address(page));
    near(parsed(await page.locator("[aria-live=polite] h3").innerText()), most);
    const behind = await page.locator("[aria-label='Operations of the chosen cell'] tbody tr").allInnerTexts();
    near(behind.reduce((sum, row) => sum + parsed(row.split("\t")[2]), 0), most);
    await tabTo(page, "[aria-live=polite] button");
    await press(page, "Enter");
    assert.match(await address(page), /operation=/);
    await page.locator("select[aria-label='Of what']").selectOption("operation");
    const key = new URLSearchParams(new URL(await address(page)).hash.split("?")[1]).get("operation");
    const one = await traffic(page, (i) => (operations.words("key").at(i) === key ? times[i] : 0));
    near(parsed(String(await page.locator(".tools .note").first().textContent())), one.total);
    await page.locator("select[aria-label='Of what']").selectOption("range");
    const moments = await tableOf(page, "moments"), inside = new Set([...moments.numbers("operation")].slice(20, 61));
    const range = await traffic(page, (i) => (inside.has(i) && operations.words("kind").at(i) === "step" ? times[i] : 0));
    near(parsed(String(await page.locator(".tools .note").first().textContent())), range.total);
    await tabTo(page, `canvas[aria-label="The groups of tiles that send most"]`);
    await press(page, "ArrowDown");
    assert.match(String(await said(page)), /^IPU \d+ tiles \d+–\d+: /);
  });
});

test("an address opens as it was left, also between two IPUs and over links", { skip }, async () => {
  let left = "", words = "";
  await visit(await pod(), "#exchange", async (page) => {
    await page.locator("select[aria-label='Which bytes']").selectOption("links");
    await canvas(page, IPUS).focus();
    await press(page, "m", "Enter");
    await canvas(page, GROUPS).focus();
    await press(page, "m", "Enter");
    assert.match(await address(page), /over%3Dlinks.*pair%3D\d+-\d+.*cell%3D\d+-\d+/);
    const [, from, to] = /pair%3D(\d+)-(\d+)/.exec(await address(page)) ?? [];
    assert.notEqual(from, to, "links are between IPUs");
    assert.match(await page.locator("main").innerText(), new RegExp(`From the tiles of IPU ${from} to those of IPU ${to}`));
    left = new URL(await address(page)).hash;
    words = await page.locator("main").innerText();
    await shot(page, "exchange-pod");
  });
  await visit(await pod(), left, async (page) => {
    assert.equal(await page.locator("main").innerText(), words);
    await painted(page);
  });
});

test("every chart has a table; the list is searched and sorted", { skip }, async () => {
  await visit(await two(), "#exchange", async (page) => {
    for (const details of await page.locator("main details").all()) {
      await details.locator("summary").click();
      await details.locator("tbody tr").first().waitFor({ timeout: 5000 });
    }
    await press(page, "/");
    await page.keyboard.type("softmax");
    assert.match(await address(page), /search=softmax/);
    const names = await page.locator(".grid-row > :first-child").allTextContents();
    assert.ok(names.length && names.every((name) => name === "softmax"), names.join());
    await page.locator(".grid-row").first().click();
    assert.match(await address(page), /operation=/);
    await shot(page, "exchange-tables");
  });
});

test("names from a model are text; a program that exchanges nothing is no error", { skip }, async () => {
  await visit(await synthetic("--hostile", "--operations", "120"), "#exchange", async (page) => {
    await canvas(page, GROUPS).focus();
    await press(page, "m", "Enter");
    assert.equal(await page.locator("main img, main script, main svg").count(), 0);
    assert.doesNotMatch(await page.title(), /owned/);
  });
  await visit(await synthetic("--empty"), "#exchange", async (page) => {
    assert.match(await page.locator("main").innerText(), /Received by tiles\s+0 B/);
    await canvas(page, GROUPS).focus();
    await press(page, "m", "Enter", "ArrowDown");
  });
});

test("more is darker to any eyes, and in the dark lighter", { skip }, async () => {
  for (const vision of [...visions, undefined]) {
    await visit(await two(), "#exchange", async (page) => {
      const ramp = page.locator("canvas.shades");
      const shades = await ramp.screenshot();
      const light = await page.evaluate(async (text) => {
        const image = await createImageBitmap(new Blob([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))]));
        const g = /** @type {OffscreenCanvasRenderingContext2D} */ (new OffscreenCanvas(image.width, image.height).getContext("2d"));
        g.drawImage(image, 0, 0);
        return [0.1, 0.3, 0.5, 0.7, 0.9].map((x) => { const [r, green, b] = g.getImageData(Math.floor(x * image.width), 5, 1, 1).data; return 0.2126 * r + 0.7152 * green + 0.0722 * b; });
      }, shades.toString("base64"));
      for (let i = 1; i < light.length; i++) assert.ok(vision ? light[i] < light[i - 1] - 6 : light[i] > light[i - 1] + 6, light.map(Math.round).join());
      if (!vision) await shot(page, "exchange-dark");
    }, vision ? { vision } : { dark: true });
  }
});
