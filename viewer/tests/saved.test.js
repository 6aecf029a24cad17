// A saved page opens from the disk, by itself; so does the small one that a notebook holds in a frame.

import assert from "node:assert/strict";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { browser, painted, runPython, scratch, shot, skip, visit } from "./harness.js";

const PAGES = ["verdict", "memory", "liveness", "operations", "timeline", "exchange", "compare"];

/** @param {string[]} synthetic @param {...string} more */
function saved(synthetic, ...more) {
  const folder = scratch(), file = path.join(folder, "profile.pop"), page = path.join(folder, "page.html");
  runPython("tests.report.synthetic", file, "--ipus", "2", "--tiles", "64", "--operations", "300", ...synthetic);
  runPython("abele", "view", file, "--save", page, ...more);
  return { url: pathToFileURL(page).href, stop() {} };
}

test("each page by file://, without a request", { skip }, async () => {
  const served = saved(["--two"]);
  for (const name of PAGES) {
    await visit(served, "#" + name, async (page) => {
      const asked = await page.evaluate(() => performance.getEntriesByType("resource").map((each) => each.name));
      assert.deepEqual(asked, []);
      if (name !== "verdict") await painted(page);
      assert.equal(await page.locator(".thinned").count(), 0);
    });
  }
});

test("hostile names and a redacted page", { skip }, async () => {
  const served = saved(["--hostile", "--out-of-memory", "--two"], "--redact-source");
  assert.ok(!readFileSync(new URL(served.url), "utf8").includes("owned"));
  for (const name of PAGES) {
    await visit(served, "#" + name, async (page) => {
      assert.notEqual(await page.title(), "owned");
      assert.equal(await page.locator("main img, main script").count(), 0);
      await shot(page, "saved-" + name);
    });
  }
});

test("a page that is thinned says so, and each page shows what remains or says what it lacks", { skip }, async () => {
  const folder = scratch(), file = path.join(folder, "profile.pop"), whole = path.join(folder, "whole.html");
  runPython("tests.report.synthetic", file, "--ipus", "2", "--tiles", "1472", "--operations", "600", "--two");
  runPython("abele", "view", file, "--save", whole);
  const bundle = ["viewer.js", "viewer.css"].map((name) => path.join(import.meta.dirname, "../../src/abele/report/static", name));
  const most = statSync(whole).size, frame = bundle.reduce((sum, name) => sum + statSync(name).size, 2000);
  for (const share of [0.9, 0.75, 0.3]) {
    const page = path.join(folder, `thinned-${share}.html`);
    writeFileSync(page, runPython("tests.report.framed", file, String(Math.round(frame + (most - frame) * share))));
    for (const name of PAGES) {
      await visit({ url: pathToFileURL(page).href, stop() {} }, "#" + name, async (page) => {
        assert.match(await page.locator(".thinned").innerText(), /Left out: numbers of single tiles/);
        const problems = await page.locator(".problem").allInnerTexts();
        if (share > 0.5) assert.deepEqual(problems, [], name);
        for (const problem of problems) assert.match(problem, /saved page was made without/);
      }, { problem: true });
    }
  }
});

test("a script that is not the viewer's does not run in it", { skip }, async () => {
  const served = saved([]), file = new URL(served.url);
  writeFileSync(file, readFileSync(file, "utf8").replace("</body>", "<script>document.title = 'owned'</script></body>"));
  await visit(served, "", async (page) => assert.notEqual(await page.title(), "owned"), { allow: /Content Security Policy/ });
});

test("a page within another one, as in a notebook", { skip }, async () => {
  const folder = scratch(), file = path.join(folder, "profile.pop");
  runPython("tests.report.synthetic", file, "--ipus", "1", "--tiles", "64", "--operations", "300");
  writeFileSync(path.join(folder, "page.html"), runPython("tests.report.framed", file));
  const page = await (await browser()).newPage();
  /** @type {string[]} */
  const faults = [];
  page.on("console", (message) => { if (message.type() === "error") faults.push(message.text()); });
  page.on("request", (request) => { if (!request.url().endsWith("/page.html")) faults.push(request.url()); });
  await page.goto(pathToFileURL(path.join(folder, "page.html")).href);
  const frame = page.frameLocator("iframe");
  await frame.locator("nav a[aria-current]").waitFor();
  await frame.getByRole("link", { name: "Operations" }).click();
  await frame.locator("nav a[aria-current]", { hasText: "Operations" }).waitFor();
  assert.equal(await frame.locator(".problem").count(), 0);
  assert.deepEqual(faults, []);
  await shot(page, "framed");
  await page.close();
});
