// Where the data come from: the server that sent this page, or the page itself when it was saved as one file.
// Both know the same names (docs/report_store.md), and each is asked for once.

import { decode, leftOut } from "./packet.js";

/**
 * @typedef {import("./packet.js").Table} Table
 * @typedef {{id: number, name: string, system: string, mode: string, seconds: number, throughput: number, fits: boolean, report?: number}} Program
 * `report`: which of several reports it is of
 * @typedef {{schema: number, abele: string, title: string, redacted: boolean, live: boolean, programs: Program[], sources: string[], saved?: boolean, thinned?: string}} Index
 * @typedef {{index: Index, json(name: string): Promise<any>, table(name: string): Promise<Table>, has(name: string): boolean, events: ((id: string) => EventSource) | null}} Source
 */

/** @param {(name: string) => Promise<ArrayBuffer>} fetched */
function remembered(fetched) {
  /** @type {Map<string, Promise<any>>} */
  const known = new Map();
  return (/** @type {string} */ name, /** @type {(buffer: ArrayBuffer) => any} */ read) => {
    let answer = known.get(name);
    if (!answer) {
      answer = fetched(name).then(read);
      answer.catch(() => known.delete(name)); // to be tried again
      known.set(name, answer);
    }
    return answer;
  };
}

const parsed = (/** @type {ArrayBuffer} */ buffer) => JSON.parse(new TextDecoder().decode(buffer));

/** @returns {Promise<Source>} */
export async function open() {
  const saved = document.getElementById("saved");
  const fetched = saved ? inPage(parsedElement(saved)) : fromServer();
  const ask = remembered(fetched.get);
  const index = await ask("index", parsed);
  return {
    index: saved ? { ...index, saved: true } : index,
    json: (name) => ask(name, parsed),
    table: (name) => ask(name, decode),
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
    get: async (/** @type {string} */ name) => {
      const answer = await fetch("data/" + name, { headers }).catch(() => null);
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
