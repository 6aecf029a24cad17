// One selection that all pages share. The address holds all of it, so that a link opens in a new tab as it was.

/**
 * @typedef {{
 *   program: number, page: string, ipu: number | null, tile: number | null, operation: string | null,
 *   from: number | null, to: number | null, search: string, other: number | null, view: string,
 * }} Selection
 * `operation` is a stable key, `from` and `to` moments, `other` the program to compare with, `view` what a page
 * keeps for itself (zoom, a chosen kind of chart).
 */

/** @type {Selection} */
const NOTHING = { program: 0, page: "verdict", ipu: null, tile: null, operation: null, from: null, to: null, search: "", other: null, view: "" };
const COUNTS = ["program", "ipu", "tile", "from", "to", "other"];

/** @param {Selection} selection */
export function encoded(selection) {
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(selection)) {
    if (name !== "page" && value !== null && value !== "" && value !== /** @type {any} */ (NOTHING)[name]) parts.set(name, String(value));
  }
  const more = parts.toString();
  return "#" + encodeURIComponent(selection.page) + (more ? "?" + more : "");
}

/** @param {string} hash @returns {Selection} */
export function decoded(hash) {
  const [page, more] = hash.replace(/^#/, "").split("?");
  /** @type {any} */
  const selection = { ...NOTHING };
  if (page) try { selection.page = decodeURIComponent(page); } catch { selection.page = page; } // there is no such page, and it will say so
  for (const [name, value] of new URLSearchParams(more ?? "")) {
    if (!Object.hasOwn(NOTHING, name) || name === "page") continue;
    if (!COUNTS.includes(name)) selection[name] = value;
    else if (/^\d{1,15}$/.test(value)) selection[name] = Number(value);
  }
  return selection;
}

/** What a page keeps for itself, by name. @param {Selection} selection */
export const viewOf = (selection) => new URLSearchParams(selection.view);

/** Numbers in it, as `10-2500`, or null where they are not `count` of them. @param {Selection} selection @param {string} name @param {number} count */
export function numbersOf(selection, name, count) {
  const values = viewOf(selection).get(name)?.split("-").map(Number);
  return values?.length === count && values.every((v) => Number.isFinite(v) && v >= 0) ? values : null;
}

/** `view` with some of it changed; what is empty or null is left out. @param {Selection} selection @param {Record<string, string | number | null>} changes */
export function viewWith(selection, changes) {
  const parts = viewOf(selection);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") parts.delete(name);
    else parts.set(name, String(value));
  }
  return parts.toString();
}

/** The selection, and who wants to know of its changes. */
export class State {
  constructor() {
    this.selection = decoded(location.hash);
    /** @type {((now: Selection, before: Selection) => void)[]} */
    this.listeners = [];
    addEventListener("hashchange", () => {
      if (encoded(this.selection) !== location.hash) this.#become(decoded(location.hash));
    });
  }
  /** Change some of it. With `replace` the browser's way back does not stop here (a brush, a search being typed).
   * @param {Partial<Selection>} changes @param {boolean} [replace] */
  set(changes, replace = false) {
    const next = { ...this.selection, ...changes };
    if (encoded(next) === encoded(this.selection)) return;
    history[replace ? "replaceState" : "pushState"](null, "", encoded(next));
    this.#become(next);
  }
  /** @param {(now: Selection, before: Selection) => void} listener @returns {() => void} what takes it off again */
  on(listener) {
    this.listeners.push(listener);
    return () => { this.listeners = this.listeners.filter((each) => each !== listener); };
  }
  /** @param {Selection} next */
  #become(next) {
    const before = this.selection;
    this.selection = next;
    for (const listener of this.listeners) listener(next, before);
  }
}
