// The page and Abele's own server: who is let in, and a report that is made again while it is looked at.

import assert from "node:assert/strict";
import { renameSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { browser, press, runPython, scratch, serveStore, shown, skip, synthetic, visit } from "./harness.js";

test("without the token, or with another one, there is no report", { skip }, async () => {
  const served = await serveStore(synthetic("--operations", "24", "--ipus", "1", "--tiles", "64"));
  const page = await (await browser()).newPage();
  for (const url of [served.url.split("?")[0], served.url.replace(/token=../, "token=zz")]) {
    const answer = await page.goto(url);
    assert.equal(answer?.status(), 403);
    assert.match(await page.locator("body").innerText(), /holds the token/);
  }
  await page.close();
  served.stop();
});

test("another page in the same browser cannot ask", { skip }, async () => {
  const served = await serveStore(synthetic("--operations", "24", "--ipus", "1", "--tiles", "64"));
  const page = await (await browser()).newPage();
  await page.goto("about:blank");
  const asked = await page.evaluate(async (url) => {
    const token = new URL(url).searchParams.get("token") ?? "", place = url.split("?")[0] + "data/index";
    const ways = [fetch(place), fetch(place, { headers: { "X-Abele-Token": token } }), fetch(`${place}?token=${token}`)];
    return Promise.all(ways.map((way) => way.then((answer) => answer.text(), () => "refused")));
  }, served.url);
  assert.deepEqual(asked, ["refused", "refused", "refused"], "even who knows the token");
  await page.close();
  served.stop();
});

test("a report that is made again is shown as it is now", { skip }, async () => {
  const folder = scratch(), file = path.join(folder, "profile.pop"), fresh = path.join(folder, "fresh.pop");
  runPython("tests.report.synthetic", file, "--ipus", "1", "--tiles", "64", "--operations", "36");
  const served = await serveStore(file);
  await visit(served, "#memory", async (page) => {
    runPython("tests.report.synthetic", fresh, "--ipus", "1", "--tiles", "64", "--operations", "60", "--two");
    renameSync(fresh, file);
    await page.keyboard.press("4"); // asks for what no page has asked for yet
    await page.locator("select[aria-label=Program]:visible").waitFor();
    await shown(page, "operations");
    assert.match(page.url(), /#operations/);
    assert.equal(await page.locator("select[aria-label=Program] option").count(), 2);
  });
  served.stop();
});

test("when the server has ended, the page says so", { skip }, async () => {
  const served = await serveStore(synthetic("--operations", "24", "--ipus", "1", "--tiles", "64"));
  await visit(served, "", async (page) => {
    served.stop();
    await page.waitForTimeout(300);
    await press(page, "2");
    await page.locator("[role=alert]", { hasText: "is `abele view` still running?" }).waitFor();
  }, { allow: /ERR_CONNECTION_REFUSED|Failed to load/ });
});
