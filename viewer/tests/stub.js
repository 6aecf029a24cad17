// A report made by hand behind a server of a few lines: for tests of the viewer's own workings, and for data so odd or so
// large that no program makes them. What a real report looks like comes from Abele's own writer and server.

import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const bundle = path.join(path.dirname(fileURLToPath(import.meta.url)), "../../src/abele/report/static");

/**
 * A packet (docs/report_store.md): strings become words, an Int32Array stays one, other numbers become f64.
 * @param {Record<string, ArrayLike<number> | string[]>} columns @param {Record<string, any>} [header]
 */
export function encode(columns, header = {}) {
  const count = Object.values(columns)[0]?.length ?? 0;
  /** @type {any[]} */
  const described = [];
  /** @type {Uint8Array[]} */
  const parts = [];
  let at = 0;
  for (const [name, values] of Object.entries(columns)) {
    let data, words, type;
    if (typeof values[0] === "string") {
      const index = new Map(), text = /** @type {string[]} */ (values);
      data = Int32Array.from(text, (word) => index.get(word) ?? (index.set(word, index.size), index.size - 1));
      [type, words] = ["word", [...index.keys()]];
    } else if (values instanceof Int32Array) [data, type] = [values, "i32"];
    else [data, type] = [Float64Array.from(/** @type {ArrayLike<number>} */ (values)), "f64"];
    described.push({ name, type, at, ...(words ? { words } : {}) });
    const whole = new Uint8Array(Math.ceil(data.byteLength / 8) * 8);
    whole.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    parts.push(whole);
    at += whole.length;
  }
  const text = new TextEncoder().encode(JSON.stringify({ ...header, count, columns: described }));
  const first = Math.ceil((12 + text.length) / 8) * 8;
  const packet = new Uint8Array(first + at);
  packet.set(new TextEncoder().encode("ABELPKT1"));
  new DataView(packet.buffer).setUint32(8, text.length, true);
  packet.set(text, 12);
  let place = first;
  for (const part of parts) { packet.set(part, place); place += part.length; }
  return packet;
}

/** @param {Record<string, any>} held JSON, packets (`encode`) or columns to be packed, by name @returns {Promise<import("./harness.js").Served>} */
export async function serveHeld(held) {
  const server = createServer((request, response) => {
    const name = decodeURIComponent(new URL(request.url ?? "/", "http://localhost").pathname.slice(1));
    const policy = { "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'" };
    if (name === "") {
      response.writeHead(200, { "Content-Type": "text/html; charset=utf-8", ...policy });
      response.end('<!doctype html><html lang="en"><meta charset="utf-8"><title>Abele</title><link rel="icon" href="data:,"><meta name="token" content="t"><link rel="stylesheet" href="viewer.css"><body><script src="viewer.js" defer></script></body></html>');
    } else if (name === "viewer.js" || name === "viewer.css") {
      response.writeHead(200, { "Content-Type": name.endsWith("js") ? "text/javascript" : "text/css" });
      response.end(readFileSync(path.join(bundle, name)));
    } else {
      const answer = held[name.replace(/^data\//, "")];
      response.writeHead(answer === undefined ? 404 : 200, { "Content-Type": "application/octet-stream" });
      if (answer === undefined) response.end(`There is nothing under ${name}.`);
      else response.end(answer instanceof Uint8Array ? answer : JSON.stringify(answer));
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(null)));
  server.unref();
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  return { url: `http://127.0.0.1:${port}/`, partial: true, stop: () => { server.closeAllConnections(); server.close(); } };
}

const NUMBERS = ["compute", "exchange", "links", "sync", "host", "bubble", "overhead", "flops", "vertices", "exchange_bytes", "link_bytes", "replica_bytes", "streamed_bytes", "code_bytes", "busy", "balance", "line", "stage", "ipu"];
const WORDS = ["function", "callee", "layer", "file", "phase", "types", "stream"];

/** Columns of operations and of their compute sets, of what is given of each; the rest is nothing.
 * @param {Record<string, any>[]} rows `sets`: vertex, compute and sync of each @returns {{operations: Record<string, any>, sets: Record<string, any>}} */
export function operationsOf(rows) {
  /** @type {Record<string, any>} */
  const operations = { id: rows.map((_, i) => i), parent: rows.map((row) => row.parent ?? -1), key: rows.map((row, i) => `${row.layer ?? ""}/${row.name}/${i}`), kind: rows.map((row) => row.kind ?? "step"), name: rows.map((row) => row.name) };
  for (const name of WORDS) operations[name] = rows.map((row) => row[name] ?? (name === "function" ? "main" : ""));
  for (const name of NUMBERS) operations[name] = rows.map((row) => row[name] ?? 0);
  operations.like = rows.map((row, i) => row.like ?? (row.sets ? i : -1));
  operations.times = rows.map((row) => row.times ?? 1);
  operations.count = rows.map((row) => row.count ?? 1);
  operations.cycles = rows.map((row) => NUMBERS.slice(0, 7).reduce((sum, part) => sum + (row[part] ?? 0), 0));
  const sets = rows.flatMap((row, i) => (row.sets ?? []).map((/** @type {[string, number, number]} */ [vertex, compute, sync], /** @type {number} */ place) => ({ operation: i, place, vertex, compute, sync })));
  const of = (/** @type {string} */ name) => sets.map((set) => /** @type {any} */ (set)[name] ?? 0);
  return { operations, sets: { id: sets.map((_, i) => i), vertex: of("vertex"), ...Object.fromEntries(["operation", "place", "compute", "sync", "vertices", "exchange", "links", "busy", "touched_bytes", "scratch_bytes", "received_bytes", "sent_bytes", "linked_bytes", "work", "received"].map((name) => [name, of(name)])) } };
}

/** The answers of a small report: a training step of three layers. @param {Record<string, any>} [changes] of its summary */
export function small(changes = {}) {
  const summary = {
    name: "digits", system: "m2000", chip: "c200", mode: "training", tiles: 1472, ipus: 1, replicas: 1, clock_hz: 1.325e9, samples: 16,
    cycles: 120_000, cycles_by: { compute: 80_000, exchange: 25_000, sync: 10_000, host: 5_000 }, seconds: 120_000 / 1.325e9, throughput: 176_666, flops: 4.5e9, peak_fraction: 0.12,
    energy_joules: 0.0125, energy: { basis: "Constants with their source.", parts: { compute: 0.01, exchange: 0.0025 } },
    tile_memory: { limit: 638_976, max: 401_000, mean: 350_000, fits: true, gap: 0, fullest_tile: 7, fullest_ipu: 0, peak_moment: 2, categories: { state: 250_000, "vertex code": 60_000, values: 91_000 } },
    notes: ["One micro-batch."], explanation: null, passes: [], planner: null, wall_seconds: null, runs: 0, provenance: { modelled: [], measured: [], assumed: [] }, band: null, advice: [], ...changes,
  };
  const { operations, sets } = operationsOf([
    { name: "begin", kind: "begin", host: 5_000 },
    { name: "matmul", layer: "fc1", compute: 60_000, sync: 5_000, exchange: 25_000, flops: 4e9, file: "digits.py", line: 12, vertices: 5888, balance: 0.9, exchange_bytes: 65_536, sets: [["amp", 60_000, 5_000]] },
    { name: "relu", layer: "fc1", compute: 20_000, sync: 5_000, file: "digits.py", line: 13, vertices: 1472, balance: 1, sets: [["map", 20_000, 5_000]] },
  ]);
  return {
    "p/0/operations": encode(operations),
    "p/0/sets": encode(sets),
    index: { schema: 1, abele: "0", title: "", redacted: false, live: false, sources: [], programs: [{ id: 0, name: summary.name, system: summary.system, mode: summary.mode, seconds: summary.seconds, throughput: summary.throughput, fits: summary.tile_memory.fits }] },
    "p/0/summary": summary,
  };
}
