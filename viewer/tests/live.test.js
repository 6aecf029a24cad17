// The page Live: a run that goes on behind Abele's own server, and one told event by event by a server of the test, which
// drops the stream as it likes.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createServer } from "node:http";
import { appendFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { frames, painted, press, said, scratch, serveStore, shot, skip, tabTo, visions, visit } from "./harness.js";

/** @typedef {import("./harness.js").Page} Page */

const line = (/** @type {number} */ n, /** @type {string} */ event, /** @type {any} */ more = {}) => JSON.stringify({ n, t: n / 10, event, ...more }) + "\n";
const begin = (id = "r") => line(0, "run", { schema: 1, abele: "0", id, pid: 1, started: 1, command: "train.py --fast" });
const program = (n = 1, number = 0, /** @type {any} */ more = {}) => line(n, "program", {
  program: number, name: "net (training)", system: "m2000", samples: 8, train: true, seconds: 1e-4, cycles: 1.3e5, ipus: 2, replicas: 1, host_in: 4096, host_out: 16, busy: 0.9, loop: null,
  cycles_by: { compute: 7e4, exchange: 1e4, links: 0, sync: 0, host: 0, bubble: 0, overhead: 5e4 }, memory: { max: 300_000, limit: 638_976, fits: true }, once: 5e4, waits: { data: { cycles: 0, moved: 0, tile: 0 } },
  stages: [0, 1].map((ipu) => ({ ipu, stages: [ipu], compute: 0.5 - ipu / 10, exchange: 0.1, links: 0.05, sync: 0.05, host: 0.02 })), ...more });
const steps = (/** @type {number} */ n, /** @type {number} */ first, /** @type {number} */ count, /** @type {any} */ more = {}) => line(n, "steps", {
  program: 0, first, count, wall: 0.002 * count, gap: 0.001 * count, wall_max: 0.003, samples: 8 * count, losses: count, loss_sum: count / (1 + n / 10), loss_min: 0.1, loss_max: 2, ...more });
const past = (/** @type {number} */ many) => Array.from({ length: many }, (_, i) => steps(i + 2, 10 * i, 10)).join("");

/** Runs of the page's card. @param {Page} page */
const runs = async (page) => Number((await page.locator(".card:has(small:text-is('Runs')) b").textContent())?.replaceAll(",", ""));
/** @param {Page} page @param {number} count */
const reaches = (page, count) => page.waitForFunction((count) => [...document.querySelectorAll(".card")].some((card) => card.querySelector("small")?.textContent === "Runs" && card.querySelector("b")?.textContent?.replaceAll(",", "") === String(count)), count, { timeout: 20_000 });

test("a run goes on before one's eyes, and its end is told", { skip }, async () => {
  const file = path.join(scratch(), "live.jsonl");
  writeFileSync(file, begin() + program() + past(60) + line(90, "message", { level: "warning", text: "<img src=x onerror=alert(1)> & co" }));
  const served = await serveStore("--live=" + file);
  await visit(served, "#live", async (page) => {
    await page.goto(served.url); // it opens on this page
    await page.waitForFunction(() => document.documentElement.dataset.shown === "live");
    await reaches(page, 600);
    assert.match(await page.locator("main").innerText(), /on m2000/);
    await page.locator("text=onerror=alert").waitFor();
    assert.equal(await page.locator("main img").count(), 0);
    await painted(page);
    appendFileSync(file, steps(91, 600, 7, { losses: 0, loss_sum: undefined, loss_min: undefined, loss_max: undefined, loss_bad: 7 }));
    await reaches(page, 607);
    assert.match(await page.locator(".card.bad, .card:has(.bad)").first().innerText(), /none in 7 runs/);
    await page.locator("text=gradient accumulation to 2").waitFor();
    appendFileSync(file, line(92, "end", { status: "failed", error: "ValueError: <b>no</b>" }));
    await page.locator(".status.failed").waitFor();
    assert.match(await page.locator(".status").innerText(), /Failed: ValueError: <b>no<\/b>/);
    assert.match((await said(page)) ?? "", /Failed: ValueError/);
    await shot(page, "live");
  }, { allow: /404/ });
  served.stop();
});

test("a deep link to another program; its pages that are not there yet are said to be so", { skip }, async () => {
  const file = path.join(scratch(), "live.jsonl");
  writeFileSync(file, begin() + program() + past(3) + program(8, 1, { name: "net (inference)", train: false }) + steps(9, 0, 4, { program: 1 }));
  const served = await serveStore("--live=" + file);
  await visit(served, "#live?view=0", async (page) => {
    await reaches(page, 30);
    await page.locator("select[aria-label='Program of the run']").selectOption({ label: "net (inference) on m2000" });
    await reaches(page, 4);
    assert.equal(await page.locator("h2:text-is('Loss')").count(), 0);
    assert.match(page.url(), /view=1/);
    assert.equal(await page.locator("nav a[aria-disabled]:text-is('Memory')").count(), 1);
    await press(page, "2");
    await page.locator(".problem:has-text('no report yet')").waitFor();
    await press(page, "8");
    await reaches(page, 4); // the stream was not asked for again
  });
  served.stop();
});

test("the program with most of the run stays in sight when another one ends it; one point alone is a mark", { skip }, async () => {
  const file = path.join(scratch(), "live.jsonl");
  writeFileSync(file, begin() + program() + steps(2, 0, 2));
  const served = await serveStore("--live=" + file);
  const name = (/** @type {Page} */ page) => page.locator("select[aria-label='Program of the run'] option:checked").innerText();
  await visit(served, "#live", async (page) => {
    await reaches(page, 2);
    appendFileSync(file, steps(3, 2, 600) + program(4, 1, { name: "net (inference)", train: false }) + steps(5, 0, 4, { program: 1, losses: 0 }) + line(6, "end", { status: "ended", error: "" }));
    await page.locator(".status.ended").waitFor();
    await reaches(page, 602);
    assert.equal(await name(page), "net (training) on m2000");
    assert.equal(await page.locator("h2:text-is('Loss')").count(), 1);
    await page.locator("select[aria-label='Program of the run']").selectOption({ label: "net (inference) on m2000" });
    await reaches(page, 4);
    await frames(page);
    const marks = await page.locator("[aria-label^='Samples a second'] canvas").evaluate((node) => {
      const canvas = /** @type {HTMLCanvasElement} */ (node), g = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
      const { data, width } = g.getImageData(0, 0, canvas.width, canvas.height), found = [];
      for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 200 && data[i] < 60 && data[i + 1] > 120 && data[i + 2] < 150) found.push((i / 4) % width / width);
      return found;
    });
    assert.ok(marks.length > 20, `${marks.length} pixels`);
    assert.ok(marks.every((x) => x > 0.4 && x < 0.7), "in the middle of its axis");
    await shot(page, "live-single");
  }, { allow: /404/ });
  await visit(served, "#live", async (page) => { // one who comes late
    await reaches(page, 602);
    assert.equal(await name(page), "net (training) on m2000");
  }, { allow: /404/ });
  served.stop();
});

test("keyboard alone reads the lines and the stages, and opens tables", { skip }, async () => {
  const file = path.join(scratch(), "live.jsonl");
  writeFileSync(file, begin() + program() + past(40));
  const served = await serveStore("--live=" + file);
  await visit(served, "#live", async (page) => {
    await reaches(page, 400);
    await tabTo(page, "[aria-label^='Loss by run']");
    await press(page, "Home");
    assert.match((await said(page)) ?? "", /^run 10: loss 0\.8333, least 0\.1000/);
    await press(page, "ArrowRight");
    assert.match((await said(page)) ?? "", /^run 20:/);
    await press(page, "w", "w", "s", "s", "s");
    await tabTo(page, "summary");
    await press(page, "Enter");
    await page.locator("details[open] tbody tr").first().waitFor();
    assert.equal(await page.locator("details[open] tbody tr").count(), 40);
    await tabTo(page, "canvas[aria-label^='Share of the modelled time']", 90);
    await press(page, "ArrowRight");
    assert.match((await said(page)) ?? "", /IPU \d, stage \d: compute/);
  }, { still: true });
  served.stop();
});

test("it looks right in the dark and to any eyes", { skip }, async () => {
  const file = path.join(scratch(), "live.jsonl");
  writeFileSync(file, begin() + program() + past(60));
  const served = await serveStore("--live=" + file);
  for (const vision of [undefined, ...visions]) {
    await visit(served, "#live", async (page) => {
      await reaches(page, 600);
      await frames(page); // the figures are there before the pictures
      await painted(page);
      await shot(page, `live-dark-${vision ?? "all"}`);
    }, { dark: true, vision });
  }
  served.stop();
});

/** A server of the viewer's page whose stream the test writes and breaks. */
async function breakable() {
  /** @type {Set<import("node:http").ServerResponse>} */
  const open = new Set();
  /** @type {string[]} */
  const asked = [];
  let refuse = false;
  const { serveHeld } = await import("./stub.js");
  const held = await serveHeld({ index: { schema: 1, abele: "0", title: "", redacted: false, live: true, sources: [], programs: [] } });
  const server = createServer(async (request, response) => {
    const url = new URL(request.url ?? "/", "http://localhost");
    if (url.pathname === "/events") {
      asked.push(String(request.headers["last-event-id"] ?? url.searchParams.get("after")));
      if (refuse) { response.writeHead(503).end(); return; }
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      response.write("retry: 50\n\n");
      open.add(response);
      return;
    }
    const answer = await fetch(held.url + url.pathname.slice(1));
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    response.end(Buffer.from(await answer.arrayBuffer()));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(null)));
  server.unref();
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  return {
    url: `http://127.0.0.1:${port}/`, asked,
    stop() { server.closeAllConnections(); server.close(); held.stop(); },
    /** @param {string} id @param {string} lines @param {boolean} [anew] */
    send(id, lines, anew) { for (const each of open) each.write((anew ? "event: anew\ndata: {}\n\n" : "") + `id: ${id}\ndata: [${lines.trim().split("\n").join(",")}]\n\n`); },
    drop() { for (const each of open) each.destroy(); open.clear(); },
    /** @param {boolean} yes */
    refuse(yes) { refuse = yes; },
    async asks(/** @type {number} */ count) { while (asked.length < count || (!refuse && !open.size)) await new Promise((resolve) => setTimeout(resolve, 20)); },
  };
}

test("a stream that is dropped resumes where it was, and one that is refused is asked again", { skip }, async () => {
  const served = await breakable();
  await visit(served, "#live", async (page) => {
    await served.asks(1);
    served.send("r.3", begin() + program() + steps(2, 0, 10) + steps(3, 10, 10), true);
    await reaches(page, 20);
    served.drop();
    await served.asks(2);
    assert.deepEqual(served.asked, ["", "r.3"]);
    // folded meanwhile: two that were had and one that was not come as one
    served.send("r.4", steps(4, 10, 20));
    await reaches(page, 30);
    await page.locator(".status:not(:has-text('trying again'))").waitFor();
    served.refuse(true);
    served.drop();
    await page.locator(".status:has-text('trying again')").waitFor();
    await served.asks(3);
    served.refuse(false);
    await served.asks(4);
    assert.equal(served.asked.at(-1), "r.4");
    served.send("r.5", steps(5, 30, 5));
    await reaches(page, 35);
    served.send("s.2", begin("s") + program() + steps(2, 0, 3), true); // another run
    await reaches(page, 3);
    served.send("s.3", line(3, "gone"));
    await page.locator(".status.gone").waitFor();
  }, { allow: /503|ERR_|Failed to load/ });
  served.stop();
});

test("a flood of events is drawn at most ten times a second, and its points stay bounded", { skip }, async () => {
  const served = await breakable();
  await visit(served, "#live", async (page) => {
    await served.asks(1);
    served.send("r.1", begin() + program(), true);
    await page.locator(".card").first().waitFor();
    await page.evaluate(() => {
      const counter = /** @type {any} */ (window);
      const from = performance.now(); // by the page's own clock: this process may be kept waiting
      counter.drawn = [0, 0];
      new MutationObserver(() => { counter.drawn = [counter.drawn[0] + 1, (performance.now() - from) / 1000]; }).observe(/** @type {Node} */ (document.querySelector(".cards")), { childList: true });
    });
    for (let i = 0; i < 150; i++) {
      served.send(`r.${i}`, Array.from({ length: 300 }, (_, k) => steps(i, 300 * i + k, 1)).join(""));
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    await reaches(page, 45_000);
    const [drawn, time] = await page.evaluate(() => /** @type {any} */ (window).drawn);
    assert.ok(drawn > 1 && drawn <= 10 * time + 2, `${drawn} drawings in ${time} s`);
    await page.locator("summary").first().click();
    await page.locator("details[open] tbody tr").first().waitFor();
    assert.equal(await page.locator("details[open] tbody tr").count(), 200);
  });
  served.stop();
});

test("a real run under `abele run --live`: steps, loss, the end, and its report in the same page", { skip }, async () => {
  const folder = scratch(), script = path.join(folder, "train.py");
  writeFileSync(script, `
import torch, poptorch, time
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
    def forward(self, x, y):
        out = self.layer(x)
        return out, torch.nn.functional.cross_entropy(out, y)
net = Net()
model = poptorch.trainingModel(net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))
x, y = torch.randn(8, 4), torch.randint(0, 2, (8,))
for step in range(120):
    model(x, y)
    time.sleep(0.02)
`);
  const { python, environment } = await import("./harness.js");
  const child = spawn(python(), ["-m", "abele", "run", "--live", "--no-advice", "--report", path.join(folder, "out"), script], { env: environment(), stdio: ["ignore", "ignore", "pipe"] });
  let complaint = "";
  const url = await new Promise((resolve, reject) => {
    child.stderr.on("data", (text) => { const found = /http:\S+/.exec(complaint += text); if (found) resolve(found[0]); });
    child.on("exit", (code) => reject(new Error(`it ended with ${code}: ${complaint}`)));
  });
  await visit({ url, stop() {} }, "#live", async (page) => {
    await page.locator(".status.running").waitFor({ timeout: 60_000 });
    await page.waitForFunction(() => /\d/.test([...document.querySelectorAll(".card")].find((card) => card.querySelector("small")?.textContent === "Loss")?.querySelector("b")?.textContent ?? ""), null, { timeout: 60_000 });
    await page.locator(".status.ended").waitFor({ timeout: 60_000 });
    assert.equal(await runs(page), 120);
    await page.locator("text=Open its report").click({ timeout: 60_000 });
    await page.locator("text=Fits?").waitFor();
    await press(page, "8");
    await reaches(page, 120);
  });
  child.stderr.destroy(); // its viewer has the other end, and stays a while
});
