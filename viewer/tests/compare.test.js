// The page Compare: two programs of one report, or of two reports, by Abele's own writer and server.

import assert from "node:assert/strict";
import path from "node:path";
import { before, test } from "node:test";
import { painted, press, readBy, runPython, said, scratch, serveStore, shot, skip, synthetic, tabTo, toldApart, visions, visit } from "./harness.js";

/** @type {import("./harness.js").Served} */
let served;
/** @type {any} */
let compared;
before(async () => {
  if (skip) return;
  const file = synthetic("--operations", "120", "--ipus", "2", "--tiles", "64", "--two");
  compared = readBy(file, "report.compare(0, 1)");
  served = await serveStore(file);
});

const number = (/** @type {number} */ x) => Math.round(x).toLocaleString("en");
const grid = "[role=grid]";

test("its totals and differences are the store's", { skip }, async () => {
  await visit(served, "#compare", async (page) => {
    const [all, ...kinds] = compared.totals;
    const text = await page.locator("main").innerText();
    assert.ok(text.includes(`${number(all.a)} → ${number(all.b)}`));
    await page.getByRole("button", { name: "kind of cycles" }).click();
    const label = await page.locator("canvas[aria-label^='Differences by kind']").getAttribute("aria-label");
    for (const kind of kinds) if (kind.difference && kind.name !== "tile bytes") assert.ok(label?.includes(kind.name), kind.name);
    assert.equal(await page.locator(grid).getAttribute("aria-rowcount"), String(compared.operations.length));
    const first = await page.locator(".grid-row").first().innerText();
    const most = compared.operations[0];
    for (const value of [most.name, most.layer, number(Math.abs(most.difference))]) assert.ok(first.includes(value), `${value} in ${first}`);
    await painted(page);
  });
});

test("the picture leads from the one whole to the other", { skip }, async () => {
  for (const by of ["layer", "operation", "kind"]) {
    await visit(served, "#compare?view=by%3D" + by, async (page) => {
      const values = await bars(page);
      const last = values.pop() ?? NaN, sum = values.reduce((a, b) => a + b, 0);
      assert.ok(Math.abs(sum - last) < 2e-3 * last, `${by}: ${sum} and ${last}`);
      assert.ok(Math.abs(last - compared.totals[0].b) < 2e-3 * last);
      if (by === "layer") await shot(page, "compare");
    });
  }
});

test("a link opens as it was: what is searched, what is shown, what is chosen", { skip }, async () => {
  const gone = compared.operations.filter((/** @type {any} */ row) => row.b === null);
  const some = gone.find((/** @type {any} */ row) => row.name === "softmax");
  await visit(served, `#compare?search=softmax&view=only%3Dremoved&operation=${encodeURIComponent(some.key)}`, async (page) => {
    const names = gone.filter((/** @type {any} */ row) => (row.name + row.layer).includes("softmax"));
    assert.equal(await page.locator(grid).getAttribute("aria-rowcount"), String(names.length));
    assert.equal(await page.locator("input[type=search]").inputValue(), "softmax");
    assert.match(await page.locator("[aria-selected=true]").innerText(), /softmax[^]*only in A/);
    await page.locator("input[type=search]").fill("/(/");
    assert.match(await page.locator("main [role=status]").innerText(), /not a regular expression/);
  });
});

/** The bars of the picture, in cycles: the first whole, the differences, the last whole. @param {import("./harness.js").Page} page */
async function bars(page) {
  await page.locator("main summary", { hasText: "As a table" }).first().click();
  await page.locator("details[open] tbody tr").first().waitFor();
  return (await page.locator("details[open] tbody tr").allInnerTexts()).map((row) => {
    const [, sign, value, unit] = /([+−]?)([\d.,]+) (\w?)cycles$/.exec(row) ?? assert.fail(row);
    return (sign === "−" ? -1 : 1) * Number(value.replaceAll(",", "")) * 1000 ** ["", "k", "M", "G"].indexOf(unit);
  });
}

test("the other way round", { skip }, async () => {
  await visit(served, "#compare?program=0&other=1", async (page) => {
    const { a, b } = compared.totals[0];
    assert.ok((await page.locator("main").innerText()).includes(`${number(b)} → ${number(a)}`));
    await page.getByRole("button", { name: "Swap" }).click();
    await page.waitForFunction(() => location.hash.includes("program=1&other=0"));
    await page.locator("main", { hasText: `${number(a)} → ${number(b)}` }).waitFor();
  });
});

test("by keyboard alone", { skip }, async () => {
  await visit(served, "#compare", async (page) => {
    await tabTo(page, "canvas[aria-label^='Differences']");
    await press(page, "ArrowDown", "ArrowDown");
    assert.match((await said(page)) ?? "", /cycles/);
    await press(page, "Enter");
    await page.waitForFunction(() => /search=/.test(location.hash));
    await tabTo(page, grid);
    await press(page, "j", "j");
    assert.match(page.url(), /operation=/);
    await press(page, "Enter");
    await page.waitForFunction(() => document.documentElement.dataset.shown === "operations");
  });
});

test("its marks are told apart by all eyes, in light and dark", { skip }, async () => {
  for (const vision of visions) {
    await visit(served, "#compare", async (page) => {
      await toldApart(page, page.locator("main .key").first().locator("canvas"));
    }, { vision, dark: vision === "achromatopsia" });
  }
});

test("one program alone has nothing to be held against; another report will do", { skip }, async () => {
  const one = synthetic("--operations", "24", "--ipus", "1", "--tiles", "64"), other = synthetic("--operations", "36", "--ipus", "1", "--tiles", "64", "--hostile");
  const alone = await serveStore(one);
  await visit(alone, "#compare", async (page) => {
    assert.match(await page.locator("[role=alert]").innerText(), /--compare/);
  }, { problem: true });
  alone.stop();
  const both = await serveStore(other, "--compare", one);
  await visit(both, "#compare", async (page) => {
    const [base, shown] = await Promise.all(["A", "B"].map((side) => page.getByLabel(side, { exact: true }).locator("option:checked").innerText()));
    assert.match(base, /^A: synthetic/, "the base is what --compare names, as in `abele report`");
    assert.match(shown, /^B: synthetic/, "what is shown is held against it");
    assert.match(await page.locator("main").innerText(), new RegExp(`${number(readBy(one, "report.summary()").cycles)} → ${number(readBy(other, "report.summary()").cycles)}`));
    assert.equal(await page.locator("main img, main script").count(), 0);
    await painted(page);
  });
  both.stop();
  const several = await serveStore(synthetic("--two", "--operations", "24", "--ipus", "1", "--tiles", "64"), "--compare", one);
  await visit(several, "#compare", async (page) => {
    assert.match(await page.getByLabel("A", { exact: true }).locator("option:checked").innerText(), /^A: /, "of the other report, where its own has one too");
  });
  await visit(several, "#compare?program=2", async (page) => {
    assert.match(await page.getByLabel("A", { exact: true }).locator("option:checked").innerText(), /^A: /, "the base is the base, whichever program was looked at");
  });
  several.stop();
});

test("of different samples an iteration, time and cycles are those of a sample", { skip }, async () => {
  const shape = ["--operations", "60", "--ipus", "1", "--tiles", "64"];
  const base = synthetic(...shape, "--samples", "64"), twice = synthetic(...shape, "--operations", "48", "--samples", "128");
  const served = await serveStore(twice, "--compare", base);
  const [a, b] = [base, twice].map((file) => readBy(file, "report.summary()"));
  assert.ok(b.cycles / 128 < a.cycles / 64);
  await visit(served, "#compare", async (page) => {
    assert.match(await page.locator(".notice").innerText(), /64 samples in A and 128 in B/);
    const texts = await page.locator(".card").allInnerTexts();
    const cycles = texts.find((text) => text.startsWith("Cycles of a sample")) ?? assert.fail(texts.join());
    assert.ok(cycles.includes(`${number(a.cycles / 64)} → ${number(b.cycles / 128)}`), cycles);
    assert.ok(!texts.some((text) => /^(Cycles|Modelled time)\n/.test(text)), "nothing is judged by an iteration");
    assert.equal(await page.locator(".card .bad").count(), 0);
    const values = await bars(page), last = values.pop() ?? NaN;
    assert.ok(Math.abs(last / (b.cycles / 128) - 1) < 2e-3, `${last}`);
    assert.ok(Math.abs(values.reduce((x, y) => x + y, 0) / last - 1) < 2e-3);
    assert.match(await page.locator(grid).innerText(), /cycles\/sample in A/);
    await shot(page, "compare-samples");
  });
  served.stop();
  const longer = await serveStore(base, "--compare", twice); // an iteration is shorter, a sample takes longer
  await visit(longer, "#compare", async (page) => {
    for (const name of ["Throughput", "Time of a sample", "Cycles of a sample"]) assert.equal(await page.locator(`.card:has(small:text-is('${name}')) b.bad`).count(), 1, name);
  });
  longer.stop();
});

test("what no single operation has is explained, and the bars add up with it", { skip }, async () => {
  const file = path.join(scratch(), "pipelined");
  const shape = ["mlp", "--small", "--train", "--stages", "2", "--no-advice", "--accumulate"];
  for (const [name, micro] of [["a", "4"], ["b", "8"]]) runPython("abele", "profile", ...shape, micro, "--report", file + name);
  const served = await serveStore(file + "b", "--compare", file + "a");
  await visit(served, "#compare?view=by%3Doperation", async (page) => {
    assert.match(await page.locator("main").innerText(), /Why "work at the same time, and waiting": the cycles of all operations add up to/);
    const values = await bars(page), last = values.pop() ?? NaN;
    assert.ok(Math.abs(values.reduce((x, y) => x + y, 0) / last - 1) < 5e-3);
    await shot(page, "compare-pipelined");
  });
  served.stop();
});
