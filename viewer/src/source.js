// Where the data come from: the server that sent this page, or the page itself when it was saved as one file.
// Both know the same names (docs/report_store.md), and each is asked for once.

import { decoding, leftOut } from "./packet.js";
import { inSlices } from "./slices.js";

/**
 * @typedef {import("./packet.js").Table} Table
 * @typedef {{id: number, name: string, system: string, mode: string, seconds: number, throughput: number, fits: boolean, report?: number}} Program
 * `report`: which of several reports it is of
 * @typedef {{schema: number, abele: string, title: string, redacted: boolean, live: boolean, programs: Program[], sources: string[], saved?: boolean, thinned?: string}} Index
 * @typedef {{index: Index, json(name: string): Promise<any>, table(name: string): Promise<Table>, has(name: string): boolean,
 *   ahead(name: string): Promise<Table>, held(name: string): boolean, hurry(needed: string[]): void, events: ((id: string) => EventSource) | null}} Source
 * `ahead` is `table` before anybody asks; `held`: whether a table is here; `hurry` gives up what is fetched ahead, but for
 * what is needed now.
 * @typedef {{answer: Promise<any>, here: boolean, wanted: boolean, stop: AbortController}} Known
 */

/** @param {(name: string, signal: AbortSignal) => Promise<ArrayBuffer>} fetched */
function remembered(fetched) {
  /** @type {Map<string, Known>} */
  const known = new Map();
  const ask = (/** @type {string} */ name, /** @type {(buffer: ArrayBuffer) => any} */ read, wanted = true) => {
    const before = known.get(name);
    if (before) {
      before.wanted ||= wanted;
      return before.answer;
    }
    const stop = new AbortController(), answer = fetched(name, stop.signal).then(read), entry = { answer, here: false, wanted, stop };
    known.set(name, entry);
    answer.then(() => { entry.here = true; }, () => { if (known.get(name) === entry) known.delete(name); }); // to be tried again
    return answer;
  };
  return {
    ask,
    held: (/** @type {string} */ name) => known.get(name)?.here ?? false,
    hurry: (/** @type {string[]} */ needed) => {
      for (const [name, entry] of known) {
        if (entry.here || entry.wanted || needed.includes(name)) continue;
        known.delete(name);
        entry.stop.abort();
      }
    },
  };
}

const decode = (/** @type {ArrayBuffer} */ buffer) => inSlices(decoding(buffer));
const parsed = (/** @type {ArrayBuffer} */ buffer) => JSON.parse(new TextDecoder().decode(buffer));

/** @returns {Promise<Source>} */
export async function open() {
  const saved = document.getElementById("saved");
  const fetched = saved ? inPage(parsedElement(saved)) : fromServer();
  const { ask, held, hurry } = remembered(fetched.get);
  const index = await ask("index", parsed);
  return {
    index: saved ? { ...index, saved: true } : index,
    json: (name) => ask(name, parsed),
    table: (name) => ask(name, decode),
    ahead: (name) => ask(name, decode, false),
    held,
    hurry,
    has: fetched.has,
    events: fetched.events,
  };
}

const parsedElement = (/** @type {HTMLElement} */ element) => JSON.parse(element.textContent || "{}");

function fromServer() {
  const token = document.querySelector("meta[name=token]")?.getAttribute("content") ?? "";
  const headers = { "X-Abele-Token": token };
  let version = "";
  return {
    get: async (/** @type {string} */ name, /** @type {AbortSignal} */ signal) => {
      const answer = await fetch("data/" + name, { headers, signal }).catch(() => null);
      if (!answer) throw new Error("The server of this page does not answer: is `abele view` still running?");
      if (!answer.ok) throw new Error((await answer.text()) || `The report has nothing under ${name}.`);
      const now = answer.headers.get("X-Abele-Report") ?? "";
      if (version && now !== version) location.reload(); // the report was made again: no page shows half of each
      version = now;
      return answer.arrayBuffer();
    },
    has: () => true,
    events: (/** @type {string} */ id) => new EventSource(`events?token=${encodeURIComponent(token)}&after=${encodeURIComponent(id)}`),
  };
}

/** @param {Record<string, string>} held compressed and in base64 under each name */
function inPage(held) {
  return {
    get: async (/** @type {string} */ name) => {
      const text = held[name];
      if (text === undefined) throw new Error(leftOut(name));
      const packed = atob(text), bytes = new Uint8Array(packed.length);
      for (let i = 0; i < bytes.length; i++) bytes[i] = packed.charCodeAt(i);
      return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
    },
    has: (/** @type {string} */ name) => name in held,
    events: null,
  };
}
