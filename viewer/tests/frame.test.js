// The frame around the pages: it opens, follows its address, answers to keys, and says what is wrong.

import assert from "node:assert/strict";
import { test } from "node:test";
import { press, said, shown, skip, tabTo, visit } from "./harness.js";
import { serveHeld, small } from "./stub.js";

test("it opens on the verdict, and an unknown page is said to be one", { skip }, async () => {
  const served = await serveHeld(small());
  await visit(served, "", async (page) => {
    assert.match(await page.title(), /Verdict · digits · Abele/);
    assert.equal(await page.locator("nav a[aria-current]").textContent(), "Verdict");
  });
  await visit(served, "#nonsense", async (page) => {
    assert.match(await page.locator("[role=alert]").innerText(), /no such page/);
  }, { problem: true });
  await visit(served, "#%E0%A4%A", async (page) => {
    assert.match(await page.locator("[role=alert]").innerText(), /no such page/, "an address that is cut off within a letter");
  }, { problem: true });
  served.stop();
});

test("data that are missing or cut short are a message, not a blank page", { skip }, async () => {
  const held = small();
  const served = await serveHeld({ index: held.index });
  await visit(served, "", async (page) => {
    assert.match(await page.locator("[role=alert]").innerText(), /nothing under/);
  }, { problem: true, allow: /404/ });
  served.stop();
});

test("keys open the help, close it and go from page to page", { skip }, async () => {
  const served = await serveHeld(small());
  await visit(served, "", async (page) => {
    await press(page, "?");
    assert.ok(await page.locator("dialog[open]").isVisible());
    await press(page, "Escape");
    assert.equal(await page.locator("dialog[open]").count(), 0);
    await press(page, "1");
    await shown(page, "verdict");
    await tabTo(page, "nav a");
    await tabTo(page, "button[title^='Copy']");
    await press(page, "Enter");
    await page.waitForFunction(() => document.getElementById("said")?.textContent);
    assert.equal(await said(page), "Link copied");
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), page.url());
  });
  served.stop();
});

test("names from a model are text, whatever they hold", { skip }, async () => {
  const hostile = '<img src=x onerror="document.title=1"><script>document.title=2</script>\u202e"\'`${1}';
  const served = await serveHeld(small({ name: hostile, notes: [hostile] }));
  await visit(served, "", async (page) => {
    assert.ok((await page.locator("main").innerText()).includes("<script>"));
    assert.equal(await page.locator("main img, main script").count(), 0);
  });
  served.stop();
});

test("light, dark and back", { skip }, async () => {
  const served = await serveHeld(small());
  await visit(served, "", async (page) => {
    const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const dark = await paper();
    await page.locator("button[title^=Light]").click();
    assert.notEqual(await paper(), dark);
    await page.locator("button[title^=Light]").click();
    assert.equal(await paper(), dark);
  }, { dark: true });
  served.stop();
});
