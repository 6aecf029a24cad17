// Page Timeline: what is drawn is what the store holds, by mouse, by keys and from an address.

import assert from "node:assert/strict";
import { test } from "node:test";
import { frames, painted, press, said, shot, shown, skip, tabTo, toldApart, visions, visit } from "./harness.js";
import { encode, operationsOf, serveHeld, small } from "./stub.js";
import { stored, synthetic } from "./synthetic.js";

/** @typedef {import("playwright-core").Page} Page */

const RASTER = "Tiles from top", LANES = "What is in sight";
const canvas = (/** @type {Page} */ page, /** @type {string} */ label) => page.locator(`main canvas[aria-label^="${label}"]`);
const plain = (/** @type {number} */ x) => Math.round(x).toLocaleString("en");

const two = () => synthetic("--ipus", "2", "--operations", "240"), pod = () => synthetic("--ipus", "64", "--operations", "1536", "--tiles", "64");
const tableOf = /** @type {(page: Page, name: string) => Promise<import("../src/packet.js").Table>} */ (stored);

/** The colours of a place on a canvas, and of the style sheet. @param {Page} page @param {string} label @param {[number, number][]} places shares of width and height */
const colours = (page, label, places) => page.evaluate(([label, places]) => {
  const found = /** @type {HTMLCanvasElement} */ (document.querySelector(`main canvas[aria-label^="${label}"]`));
  const g = /** @type {CanvasRenderingContext2D} */ (found.getContext("2d"));
  const named = ["compute", "exchange", "idle", "sync"].map((name) => [getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim(), name]);
  return places.map(([x, y]) => {
    const [red, green, blue] = g.getImageData(Math.floor(x * found.width), Math.floor(y * found.height), 1, 1).data;
    const hex = "#" + [red, green, blue].map((part) => part.toString(16).padStart(2, "0")).join("");
    return named.find(([colour]) => colour === hex)?.[1] ?? hex;
  });
}, /** @type {[string, [number, number][]]} */ ([label, places]));

/** The address as the page has it. @param {Page} page */
const address = (page) => page.evaluate(() => location.href);

/** Go on to another selection, and wait until it is drawn. @param {Page} page @param {string} hash */
const follow = (page, hash) => page.evaluate((hash) => new Promise((resolve) => {
  addEventListener("hashchange", () => requestAnimationFrame(() => requestAnimationFrame(() => resolve(null))), { once: true });
  location.hash = hash;
}), hash);

/** All pixels of a canvas, as one number. @param {Page} page @param {string} label */
const pixels = (page, label) => page.evaluate((label) => {
  const found = /** @type {HTMLCanvasElement} */ (document.querySelector(`main canvas[aria-label^="${label}"]`));
  return /** @type {CanvasRenderingContext2D} */ (found.getContext("2d")).getImageData(0, 0, found.width, found.height).data.reduce((sum, value) => (sum * 31 + value) % 1e9, 7);
}, label);

test("everything is drawn, and its totals are the store's", { skip }, async () => {
  await visit(await two(), "#timeline", async (page) => {
    await painted(page);
    const summary = await stored(page, "summary");
    await page.locator("main details summary").first().click();
    await page.locator("main details table").first().waitFor();
    const rows = await page.locator("main details table tbody tr").allTextContents();
    assert.ok(rows.at(-1)?.startsWith("all" + plain(summary.cycles)), rows.at(-1));
    for (const [part, value] of Object.entries(summary.cycles_by)) if (value) assert.ok(rows.some((row) => row.startsWith(part + plain(value))), part);
    const moments = await tableOf(page, "moments");
    assert.match(await page.locator("main").innerText(), new RegExp(`of ${plain(summary.cycles)},.*of ${plain(moments.count)}`));
    await shot(page, "timeline");
  });
});

test("a click chooses an operation, tells its line, and says why a tile waits", { skip }, async () => {
  await visit(await two(), "#timeline", async (page) => {
    const box = /** @type {{width: number, height: number}} */ (await canvas(page, LANES).boundingBox());
    await canvas(page, LANES).click({ position: { x: box.width * 0.1, y: 60 } });
    const key = new URLSearchParams(new URL(await address(page)).hash.split("?")[1]).get("operation"), operations = await tableOf(page, "operations");
    const row = Array.from({ length: operations.count }, (_, i) => i).findIndex((i) => operations.words("key").at(i) === key);
    assert.ok(row >= 0, "an operation of the store");
    const chosen = page.locator("section[aria-label='The chosen step']"), text = await chosen.innerText();
    assert.ok(text.includes(`model.py:${operations.numbers("line")[row]} in ${operations.words("layer").at(row)}`), text);
    assert.ok(text.includes(plain(operations.numbers("cycles")[row])));
    for (const link of await chosen.locator("p a").all()) assert.ok((await link.getAttribute("href"))?.includes(encodeURIComponent(String(key)).replaceAll("%20", "+")));
    // What it says of a tile, held against the store.
    const sets = await tableOf(page, "sets"), columns = await tableOf(page, "columns"), set = sets.numbers("operation").indexOf(operations.numbers("like")[row]);
    const work = [...columns.numbers("column").keys()].filter((i) => columns.numbers("column")[i] === sets.numbers("work")[set]);
    const tile = 700, own = columns.numbers("value")[/** @type {number} */ (work.find((i) => columns.numbers("stop")[i] > tile))];
    await follow(page, new URL(await address(page)).hash + "&tile=" + tile);
    assert.match(await chosen.innerText(), new RegExp(`Why tile ${tile} waits[^]*Tile ${tile} works ${plain(own)} of the`));
    if (own < sets.numbers("compute")[set]) assert.match(await chosen.innerText(), new RegExp(`waits ${plain(sets.numbers("compute")[set] - own)} cycles for slower tiles`));
    await shot(page, "timeline-step");
  });
});

test("a tile is drawn as long as it works, then as waiting", { skip }, async () => {
  await visit(await two(), "#timeline", async (page) => {
    const [moments, operations, sets, columns] = await Promise.all(["moments", "operations", "sets", "columns"].map((name) => tableOf(page, name)));
    const column = (/** @type {number} */ id) => { const found = new Float64Array(1472); for (let i = 0, tile = 0; i < columns.count; i++) { if (columns.numbers("column")[i] !== id) continue; for (; tile < columns.numbers("stop")[i]; tile++) found[tile] = columns.numbers("value")[i]; } return found; };
    let moment = -1, work = new Float64Array(0), set = -1;
    for (let i = 0; moment < 0 && i < moments.count; i++) { // the first step of IPU 0 in which some tiles wait and some do not
      const like = operations.numbers("like")[moments.numbers("operation")[i]];
      if (moments.numbers("ipu")[i] !== 0 || like === undefined || like < 0 || moments.numbers("compute")[i] < 1000) continue;
      set = sets.numbers("operation").indexOf(like);
      work = column(sets.numbers("work")[set]);
      if (Math.min(...work) < 0.4 * Math.max(...work)) moment = i;
    }
    const start = moments.numbers("start")[moment], length = ["sync", "exchange", "compute", "host"].reduce((sum, name) => sum + moments.numbers(name)[moment], 0);
    await follow(page, `#timeline?view=window%3D${start}-${start + length}%26axis%3Dcycles`);
    await painted(page, RASTER);
    const busiest = work.indexOf(Math.max(...work)), least = work.indexOf(Math.min(...work)), before = (length - moments.numbers("compute")[moment]) / length;
    const x = before + 0.7 * (1 - before), y = (/** @type {number} */ tile) => (tile + 0.5) / 1472;
    assert.deepEqual(await colours(page, RASTER, [[x, y(busiest)], [x, y(least)], [0.001, y(busiest)]]), ["compute", "idle", "sync"]);
    await shot(page, "timeline-moment");
  });
});

const NO_TRAFFIC = { operation: [], source_ipu: [], source_group: [], target_ipu: [], target_group: [], bytes: [], links: [] };
const NO_PIPELINE = { repeat: [], ipu: [], stage: [], backward: [], micro_batch: [], start: [], length: [] };
const TILES = 1472, STEPS = 6000, BUSY = 4321;

/** Steps in which no tile works, but for tile 900 in one of them. */
function rare() {
  const { operations, sets } = operationsOf([{ name: "idle", compute: 1000, sets: [["map", 1000, 0]] }, { name: "busy", compute: 1000, sets: [["map", 1000, 0]] }]);
  const none = new Float64Array(STEPS), which = new Int32Array(STEPS);
  sets.work = [0, 1];
  which[BUSY] = 1;
  return { ...small({ tiles: TILES, ipus: 1, cycles: STEPS * 1000, cycles_by: { compute: STEPS * 1000 }, rasters: [] }), "p/0/operations": encode(operations), "p/0/sets": encode(sets), "p/0/traffic": encode(NO_TRAFFIC), "p/0/pipeline": encode(NO_PIPELINE),
    "p/0/columns": encode({ column: Int32Array.of(0, 1, 1, 1), stop: Int32Array.of(TILES, 900, 901, TILES), value: Int32Array.of(0, 0, 1000, 0) }),
    "p/0/moments": encode({ operation: which, start: none.map((_, i) => i * 1000), sync: none, exchange: none, compute: none.map(() => 1000), host: none, ipu: new Int32Array(STEPS), depth: new Int32Array(STEPS) }) };
}

test("of many steps on a pixel one busy tile is not lost", { skip }, async () => {
  const stub = await serveHeld(rare());
  await visit(stub, "#timeline", async (page) => {
    const seen = () => page.evaluate((label) => {
      const found = /** @type {HTMLCanvasElement} */ (document.querySelector(`main canvas[aria-label^="${label}"]`));
      const data = /** @type {CanvasRenderingContext2D} */ (found.getContext("2d")).getImageData(0, 30, found.width, found.height - 60).data, hex = getComputedStyle(document.documentElement).getPropertyValue("--compute").trim();
      const [red, green, blue] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)), met = [];
      for (let i = 0; i < data.length; i += 4) if (data[i] === red && data[i + 1] === green && data[i + 2] === blue) met.push([((i / 4) % found.width) / found.width, (Math.floor(i / 4 / found.width) + 30) / found.height]);
      return met;
    }, RASTER);
    const met = await seen();
    assert.ok(met.length >= 1 && met.length <= 3, `${met.length} pixels`);
    assert.ok(Math.abs(met[0][0] - BUSY / STEPS) < 0.01 && Math.abs(met[0][1] - 900 / TILES) < 0.01);
    await page.locator("select[aria-label='Of what is on a pixel']").selectOption("least");
    await frames(page);
    assert.equal((await seen()).length, 0, "the least on those pixels is nothing");
  });
  stub.stop();
});

test("a saved page without room for single tiles draws its bins, or says what is missing", { skip }, async () => {
  const empty = encode({ column: [], stop: [], value: [] }, { thinned: true }), bins = Math.ceil(STEPS / 256), across = TILES / 4, none = new Float64Array(bins * across), busy = none.map((_, i) => (Math.floor(i / across) === BUSY >> 8 && i % across === 225 ? 1 : 0));
  const binned = encode({ "work.max": busy, "work.min": none, "work.sum": busy, "exchange.max": none, "exchange.min": none, "exchange.sum": none }, { bins, tile_bins: across });
  const held = rare(), missing = { ...held, "p/0/columns": empty };
  const stub = await serveHeld({ ...missing, "p/0/summary": { ...held["p/0/summary"], rasters: [[2, 0]] }, "p/0/raster/2/0": binned });
  await visit(stub, "#timeline", async (page) => {
    await page.waitForFunction(() => performance.getEntriesByType("resource").some((each) => each.name.includes("raster/2/0")));
    await page.waitForTimeout(100);
    assert.deepEqual(await colours(page, RASTER, [[(BUSY >> 8) * 256 / STEPS + 0.02, 901.5 / TILES], [0.5, 0.5]]), ["compute", "idle"]);
    await canvas(page, LANES).click({ position: { x: 300, y: 30 } });
    assert.match(await page.locator("section[aria-label='The chosen step']").innerText(), /without the numbers of single tiles/);
  });
  stub.stop();
  const bare = await serveHeld({ ...missing, "p/0/moments": encode({ operation: [], start: [], sync: [], exchange: [], compute: [], host: [], ipu: [], depth: [] }, { thinned: true }), "p/0/traffic": encode(NO_TRAFFIC, { thinned: true }) });
  await visit(bare, "#timeline", async (page) => assert.match(await page.locator("main").innerText(), /without the program over time/));
  await visit(bare, "#exchange", async (page) => assert.match(await page.locator("main").innerText(), /without who sends to whom/));
  bare.stop();
});

test("an address opens as it was left: window, axis, choice, range, tiles", { skip }, async () => {
  let left = "", seen = 0, words = "";
  await visit(await two(), "#timeline?tile=300&ipu=1&from=150&to=160", async (page) => {
    await canvas(page, LANES).focus();
    await press(page, "f", "s", "j", "j");
    await canvas(page, RASTER).focus();
    await press(page, "W", "ArrowDown");
    await page.locator("select[aria-label='What a width means']").selectOption("cycles");
    await page.locator("select[aria-label='Of what is on a pixel']").selectOption("mean");
    await page.waitForFunction(() => /how%3Dmean/.test(location.hash));
    await page.mouse.move(0, 0);
    await page.evaluate(() => /** @type {HTMLElement} */ (document.activeElement).blur());
    await page.waitForTimeout(50);
    left = new URL(await address(page)).hash;
    words = await page.locator("main").innerText();
    await page.reload();
    await shown(page, "timeline");
    await painted(page, RASTER);
    seen = await pixels(page, RASTER);
  });
  for (const part of [/window%3D\d+-\d+/, /axis%3Dcycles/, /tiles%3D\d+-\d+/, /operation=/, /from=150/, /tile=301/]) assert.match(left, part);
  await visit(await two(), left, async (page) => {
    await painted(page, RASTER);
    assert.equal(new URL(await address(page)).hash, left);
    assert.equal(await page.locator("main").innerText(), words);
    assert.equal(await pixels(page, RASTER), seen, "the same pixels");
  });
  for (const odd of ["axis%3Dconstructor", "axis%3D__proto__%26how%3DtoString"]) await visit(await two(), `#timeline?view=${odd}`, (page) => painted(page, RASTER).then(() => {}));
});

test("moving along keeps the pixels that stay, and draws what a fresh page draws", { skip }, async () => {
  await visit(await two(), "#timeline?view=window%3D200000-260000", async (page) => {
    await canvas(page, RASTER).focus();
    await press(page, "d", "d", "a", "d");
    await page.waitForFunction(() => !/window%3D200000/.test(location.hash));
    const moved = await colours(page, RASTER, Array.from({ length: 200 }, (_, i) => [(i + 0.5) / 200, 0.5]));
    await page.reload();
    await shown(page, "timeline");
    await painted(page, RASTER);
    const fresh = await colours(page, RASTER, Array.from({ length: 200 }, (_, i) => [(i + 0.5) / 200, 0.5]));
    const different = moved.filter((colour, i) => colour !== fresh[i]).length;
    assert.ok(different <= 20, `${different} of 200 places differ`); // at most by a pixel at edges
  });
});

test("with keys alone: steps, tiles, a range for the other pages, and the way back", { skip }, async () => {
  await visit(await two(), "#timeline", async (page) => {
    await tabTo(page, `canvas[aria-label^="${LANES}"]`);
    await press(page, "j");
    assert.match(String(await said(page)), /moment \d+, from cycle/);
    const first = await address(page);
    await press(page, "j");
    assert.notEqual(await address(page), first);
    await press(page, "Home", "[", "PageDown", "PageDown", "]");
    assert.match(await address(page), /from=0&to=\d+/);
    assert.match(await page.locator("main").innerText(), /Chosen for all pages: moments 0 to \d+/);
    await tabTo(page, `canvas[aria-label^="${RASTER}"]`);
    await press(page, "ArrowDown", "ArrowDown");
    assert.match(await address(page), /tile=2/);
    assert.match(String(await said(page)), /^tile 2/);
    await press(page, "Enter");
    assert.match(await page.locator("main").innerText(), /Why tile 2 waits/);
    await press(page, "Escape");
    assert.doesNotMatch(await address(page), /from=|operation=|tile=/);
    await tabTo(page, "summary");
  });
});

test("a drag chooses a range, a table tells what is in sight", { skip }, async () => {
  await visit(await two(), "#timeline", async (page) => {
    const box = /** @type {{x: number, y: number, width: number, height: number}} */ (await canvas(page, LANES).boundingBox());
    await page.mouse.move(box.x + 200, box.y + 60);
    await page.mouse.down();
    await page.mouse.move(box.x + 300, box.y + 60, { steps: 4 });
    await page.mouse.up();
    assert.match(await address(page), /from=\d+&to=\d+/);
    const details = canvas(page, LANES).locator("xpath=..").locator("details");
    await details.locator("summary").click();
    const all = await details.locator(".note").textContent();
    await page.locator("button", { hasText: "Show chosen" }).click();
    await page.waitForFunction(() => /window%3D/.test(location.hash));
    assert.ok(Number.parseInt(String(await details.locator(".note").textContent())) < Number.parseInt(String(all)), "fewer rows than before");
    assert.ok(await details.locator(".grid-row").count());
  });
});

test("pipelines, and many IPUs", { skip }, async () => {
  await visit(await pod(), "#timeline", async (page) => {
    await painted(page);
    const pipeline = await tableOf(page, "pipeline"), words = await page.locator("section[aria-label^=Pipeline]").innerText();
    const of = (/** @type {string} */ name) => pipeline.numbers(name);
    let end = 0, busy = 0;
    for (let i = 0; i < pipeline.count; i++) { end = Math.max(end, of("start")[i] + of("length")[i]); busy += of("length")[i]; }
    assert.ok(words.includes(plain(end) + " cycles"), words);
    assert.ok(words.includes((100 * (1 - busy / (64 * end))).toFixed(1) + " %"), words);
    await canvas(page, "Pipeline").focus();
    await press(page, "ArrowDown", "ArrowRight");
    assert.match(String(await said(page)), /IPU 1/);
    assert.equal(await page.locator("select[aria-label=IPU] option").count(), 64);
    await shot(page, "timeline-pod");
  }, { height: 1600 });
});

test("names from a model are text, a program without tiles is said to be one", { skip }, async () => {
  await visit(await synthetic("--hostile", "--operations", "120"), "#timeline", async (page) => {
    await canvas(page, LANES).focus();
    await press(page, "j", "j", "j", "f");
    await painted(page);
    assert.equal(await page.locator("main img, main script, main svg").count(), 0);
    assert.doesNotMatch(await page.title(), /owned/);
  });
  await visit(await synthetic("--empty"), "#timeline", async (page) => {
    assert.match(await page.locator("main").innerText(), /Nothing of this program runs on tiles/);
    await canvas(page, LANES).focus();
    await press(page, "j", "k", "f", "0", "w", "[");
  });
});

test("who comes back finds the page as it was, with what was chosen elsewhere, and in the theme of the day", { skip }, async () => {
  await visit(await two(), "#timeline?view=window%3D200000-260000%26axis%3Dfolded&tile=700", async (page) => {
    await canvas(page, LANES).focus();
    await press(page, "j");
    const before = await pixels(page, RASTER), hash = new URL(await address(page)).hash;
    await follow(page, "#exchange" + hash.slice("#timeline".length).replace("tile=700", "tile=900"));
    await shown(page, "exchange");
    await follow(page, hash);
    await shown(page, "timeline");
    await painted(page);
    assert.equal(await pixels(page, RASTER), before, "the same pixels");
    await follow(page, hash.replace("tile=700", "tile=1200"));
    assert.match(await page.locator("main").innerText(), /Why tile 1200 waits/);
    await page.locator("button[title^=Light]").click();
    await shown(page, "timeline");
    await painted(page);
    assert.equal((await colours(page, RASTER, [[0.999, 0.5]]))[0].startsWith("#"), false, "a colour of the dark theme");
    assert.notEqual(await pixels(page, RASTER), before);
  });
});

test("parts are told apart with any eyes, and in the dark", { skip }, async () => {
  for (const vision of visions) {
    await visit(await two(), "#timeline", (page) => toldApart(page, page.locator("main .key").first().locator("canvas")), { vision });
  }
  await visit(await two(), "#timeline?view=window%3D200000-260000&tile=700", async (page) => {
    await canvas(page, LANES).focus();
    await press(page, "j");
    await painted(page);
    await toldApart(page, page.locator("main .key").first().locator("canvas"));
    await shot(page, "timeline-dark");
  }, { dark: true, still: true });
});
