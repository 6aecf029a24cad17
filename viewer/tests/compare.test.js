// The page Compare: two programs of one report, or of two reports, by Abele's own writer and server.

import assert from "node:assert/strict";
import { before, test } from "node:test";
import { painted, press, readBy, said, serveStore, shot, skip, synthetic, tabTo, toldApart, visions, visit } from "./harness.js";

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
      await page.locator("main summary", { hasText: "As a table" }).first().click();
      await page.locator("details[open] tbody tr").first().waitFor();
      const rows = await page.locator("details[open] tbody tr").allInnerTexts();
      const values = rows.map((row) => {
        const [, sign, value, unit] = /([+−]?)([\d.,]+) (\w?)cycles$/.exec(row) ?? assert.fail(row);
        return (sign === "−" ? -1 : 1) * Number(value.replaceAll(",", "")) * 1000 ** ["", "k", "M", "G"].indexOf(unit);
      });
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

test("the other way round", { skip }, async () => {
  await visit(served, "#compare?program=1&other=0", async (page) => {
    const { a, b } = compared.totals[0];
    assert.ok((await page.locator("main").innerText()).includes(`${number(b)} → ${number(a)}`));
    await page.getByRole("button", { name: "Swap" }).click();
    await page.waitForFunction(() => !location.hash.includes("program=1"));
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
  const both = await serveStore(one, "--compare", other);
  await visit(both, "#compare", async (page) => {
    assert.match(await page.locator("main").innerText(), /B: /);
    assert.equal(await page.locator("main img, main script").count(), 0);
    await painted(page);
  });
  both.stop();
  const several = await serveStore(synthetic("--two", "--operations", "24", "--ipus", "1", "--tiles", "64"), "--compare", one);
  await visit(several, "#compare", async (page) => {
    assert.match(await page.getByLabel("B", { exact: true }).locator("option:checked").innerText(), /^B: /, "of the other report, where its own has one too");
  });
  several.stop();
});
