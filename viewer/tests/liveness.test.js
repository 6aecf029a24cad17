// Page Liveness: when memory is short, and who takes it. Against synthetic reports behind Abele's own server.

import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes } from "../src/format.js";
import { frames, painted, press, said, shot, skip, tabTo, toldApart, visions, visit } from "./harness.js";
import { rowsOf, stored, synthetic, whole } from "./synthetic.js";

/** @typedef {import("playwright-core").Page} Page */

const usual = () => synthetic("--ipus", "2", "--operations", "600");
const CHART = "canvas[aria-label^='Bytes of the fullest tile over the program']";

/** The tensors on the fullest tile that are live in some moments and not always: rows. @param {Page} page @param {number} from @param {number} to */
async function live(page, from, to) {
  const { tile_memory: m } = await stored(page, "summary"), t = await stored(page, "tensors");
  return [...t.numbers("id").keys()].filter((i) => t.numbers("ipu")[i] === m.fullest_ipu && !t.numbers("always")[i] && t.numbers("first")[i] <= to && t.numbers("last")[i] >= from);
}

test("its totals are the store's", { skip }, async () => {
  await visit(await usual(), "#liveness", async (page) => {
    await whole(page);
    const { tile_memory: m } = await stored(page, "summary"), liveness = await stored(page, "liveness"), tensors = await stored(page, "tensors");
    const max = liveness.numbers("max");
    assert.equal(max[m.peak_moment], m.max);
    const cards = await page.locator(".card").allInnerTexts();
    assert.ok(cards[0].includes(bytes(m.max)) && cards[1].includes(`moment ${m.peak_moment}`) && cards[3].includes(bytes(liveness.numbers("mean")[m.peak_moment])));
    const side = await page.locator(".aligned tbody tr").allInnerTexts();
    for (const [name, size] of Object.entries(m.categories)) if (size) assert.ok(side.some((row) => row.includes(name) && row.includes(bytes(size))), name);
    assert.ok(side.some((row) => row.startsWith("together") && row.includes(bytes(m.max))));
    const first = page.locator("[aria-label='Tightest moments'] tbody tr").first();
    assert.match(await first.innerText(), new RegExp(`^moment ${m.peak_moment}\\s+${bytes(m.max)}`));
    const folded = await page.locator("[aria-label='Tightest moments'] tbody tr").allInnerTexts();
    assert.ok(folded.some((row) => /\+\d+ like it, down to/.test(row)));
    const alive = await live(page, m.peak_moment, m.peak_moment);
    assert.ok(alive.length > 0);
    const sum = alive.reduce((all, i) => all + tensors.numbers("tile_bytes")[i], 0);
    assert.equal(sum, m.categories.values, "what is live at the peak adds up");
    assert.match(await page.locator("main .note", { hasText: "“Long”" }).innerText(), new RegExp(`^${alive.length} storages live at moment ${m.peak_moment}, ${bytes(sum)} of`));
    await painted(page);
    await shot(page, "liveness");
  });
});

test("moments are chosen by dragging: who lives then, and on to their tiles", { skip }, async () => {
  await visit(await usual(), "#liveness", async (page) => {
    await whole(page);
    const box = /** @type {{x: number, y: number, width: number, height: number}} */ (await page.locator(CHART).boundingBox());
    await page.mouse.move(box.x + box.width * 0.5, box.y + 60);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.55, box.y + 60, { steps: 4 });
    await page.mouse.move(box.x + box.width * 0.6, box.y + 60, { steps: 4 });
    await page.mouse.up();
    await frames(page);
    const [, from, to] = (/from=(\d+)&to=(\d+)/.exec(page.url()) ?? []).map(Number);
    assert.ok(from < to);
    const alive = await live(page, from, to);
    assert.match(await page.locator("main .note", { hasText: "“Long”" }).innerText(), new RegExp(`^${alive.length} storages live in moments ${from} to ${to}`));
    const max = (await stored(page, "liveness")).numbers("max");
    let most = from;
    for (let i = from; i <= to; i++) if (max[i] > max[most]) most = i;
    assert.match(await page.locator(".made").innerText(), new RegExp(`the fullest is ${most}: ${bytes(max[most])}`));
    await page.locator(".made a", { hasText: "Its tiles" }).click();
    await page.waitForFunction(() => document.documentElement.dataset.shown === "memory");
    await whole(page);
    assert.match(await page.locator("main h2").first().innerText(), new RegExp(`at moment ${most}$`));
  });
});

test("a cold tab opens as it was left", { skip }, async () => {
  const served = await usual();
  const seen = async (/** @type {Page} */ page) => ({ about: await page.locator(".made").innerText(), rows: await rowsOf(page, "When tensors are live"), cycles: await page.locator("button", { hasText: "By cycles" }).getAttribute("aria-pressed") });
  let hash = "";
  /** @type {any} */
  let left;
  await visit(served, "#liveness?from=250&to=320", async (page) => {
    await whole(page);
    await page.locator("button", { hasText: "By cycles" }).click();
    await page.locator("button", { hasText: "Zoom to these" }).click();
    await page.locator("select[aria-label='How long they stay']").selectOption("long");
    await page.locator("[aria-label='When tensors are live'] .grid-row").first().click();
    await frames(page);
    left = await seen(page);
    hash = new URL(page.url()).hash;
  });
  assert.ok(left.rows.length && left.rows.every((/** @type {string[]} */ row) => row[1] === "long"));
  await visit(served, hash, async (page) => {
    await whole(page);
    assert.deepEqual(await seen(page), left);
    assert.equal(await page.locator("[aria-label='When tensors are live'] [aria-selected=true]").count(), 1);
    await shot(page, "liveness-chosen");
  }, { dark: true });
});

test("without a mouse: a moment, a range, zoom, a tensor", { skip }, async () => {
  await visit(await usual(), "#liveness", async (page) => {
    await whole(page);
    await tabTo(page, CHART);
    await press(page, "Home", "ArrowRight");
    assert.match(await said(page) ?? "", /^moment \d+, from cycle/);
    await press(page, "Enter");
    assert.match(page.url(), /from=(\d+)&to=\1/);
    await press(page, "PageDown", "PageDown", "PageDown", "]");
    const [, from, to] = (/from=(\d+)&to=(\d+)/.exec(page.url()) ?? []).map(Number);
    assert.ok(from < to, page.url());
    await press(page, "j");
    assert.match(page.url(), new RegExp(`from=${from + 1}&to=${from + 1}`));
    await press(page, "w", "w", "d");
    assert.match(page.url(), /zoom/);
    await press(page, "s", "s", "s", "s", "Escape");
    assert.doesNotMatch(page.url(), /zoom|from/);
    await tabTo(page, "[aria-label='When tensors are live']");
    await press(page, "j", "ArrowDown");
    assert.match(await said(page) ?? "", /^Tensor .*Live/);
    assert.match(page.url(), /tensor/);
  });
});

test("kinds are told apart by any eyes", { skip }, async () => {
  for (const vision of visions) await visit(await usual(), "#liveness", (page) => toldApart(page, page.locator("main .key canvas")), { vision });
});

test("what does not fit: the moments over the limit are counted", { skip }, async () => {
  await visit(await synthetic("--ipus", "4", "--operations", "300", "--out-of-memory"), "#liveness", async (page) => {
    await whole(page);
    const { tile_memory: m } = await stored(page, "summary"), max = (await stored(page, "liveness")).numbers("max");
    const over = [...max].filter((x) => x > m.limit).length, cards = await page.locator(".card").allInnerTexts();
    assert.ok(over > 0);
    assert.ok(cards[2].includes("Over by") && cards[2].includes(bytes(m.gap)));
    assert.ok(cards[4].includes(over.toLocaleString("en")));
    await shot(page, "liveness-full");
  });
});

test("names that try to break out are names", { skip }, async () => {
  await visit(await synthetic("--operations", "60", "--hostile"), "#liveness", async (page) => {
    await whole(page);
    assert.ok((await page.locator("main").innerText()).includes("<script>"));
    assert.notEqual(await page.title(), "owned");
    assert.equal(await page.locator("main img, main script, main svg").count(), 0);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "a long name does not widen the page");
  });
});

test("a program that does nothing has a line, and no tensors", { skip }, async () => {
  await visit(await synthetic("--ipus", "1", "--empty"), "#liveness", async (page) => {
    await whole(page);
    assert.match(await page.locator("main").innerText(), /0 storages live at moment 0/);
    await painted(page, "over the program");
    await page.locator("button", { hasText: "By cycles" }).click();
    await frames(page);
    await painted(page, "over the program");
  });
});

test("a page that was made ahead follows what is chosen before it is seen", { skip }, async () => {
  await visit(await usual(), "", async (page) => {
    await page.waitForFunction(() => document.documentElement.dataset.ahead);
    await page.evaluate(() => { location.hash = "#liveness?from=50&to=60"; });
    await whole(page);
    assert.match(await page.locator("main .note", { hasText: "“Long”" }).innerText(), new RegExp(`^${(await live(page, 50, 60)).length} storages live in moments 50 to 60`));
    await painted(page);
    await page.evaluate(() => { location.hash = "#exchange?from=50&to=60&view=scope%3Drange"; });
    await page.waitForFunction(() => document.documentElement.dataset.shown === "exchange");
    assert.match(await page.locator("main select[aria-label='Of what']").innerText(), /moments 50 to 60/);
    assert.equal(await page.locator("main select[aria-label='Of what']").inputValue(), "range");
    await frames(page);
    await painted(page);
  });
});
