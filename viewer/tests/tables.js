// What the store holds, asked of the server behind a page that is open: for tests that hold the page against it.

import { decode } from "../src/packet.js";

/** @param {import("playwright-core").Page} page @param {string} name @returns {Promise<ArrayBuffer>} */
async function asked(page, name) {
  const text = await page.evaluate(async (name) => {
    const token = document.querySelector("meta[name=token]")?.getAttribute("content") ?? "";
    const bytes = new Uint8Array(await (await fetch("data/" + name, { headers: { "X-Abele-Token": token } })).arrayBuffer());
    let all = "";
    for (let i = 0; i < bytes.length; i += 8192) all += String.fromCharCode(...bytes.subarray(i, i + 8192));
    return btoa(all);
  }, name);
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
}

/** A table of program 0. @param {import("playwright-core").Page} page @param {string} name */
export const tableOf = async (page, name) => decode(await asked(page, "p/0/" + name));

/** The summary of program 0. @param {import("playwright-core").Page} page */
export const summaryOf = async (page) => JSON.parse(new TextDecoder().decode(await asked(page, "p/0/summary")));
