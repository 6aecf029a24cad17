// Elements. Names from a model go in as text, never as markup.

/**
 * @param {string} tag
 * @param {Record<string, any> | null} [attributes] `onclick` and its like take functions
 * @param {...(Node | string | null | undefined)} children
 * @returns {HTMLElement}
 */
export function make(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (key.startsWith("on")) { if (value) node.addEventListener(key.slice(2), value); }
    else if (key === "style") node.style.cssText = value ?? ""; // an attribute is what the content policy forbids
    else if (value !== undefined && value !== null && value !== false) node.setAttribute(key, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined).map((child) => /** @type {Node | string} */ (child)));
  return node;
}

/** @param {string} text */
export const heading = (text) => make("h2", null, text);
/** @param {string} text */
export const note = (text) => make("p", { class: "note" }, text);
/** @param {string} name @param {string} value @param {string} [more] @param {string} [kind] `good` or `bad` */
export const card = (name, value, more, kind) =>
  make("div", { class: "card" }, make("small", null, name), make("b", { class: kind }, value), more ? make("small", null, more) : null);

/** What went wrong, in the place of what was to be shown. @param {unknown} error @param {string} [what] was to be done */
export const problem = (error, what = "") => make("p", { class: "problem", role: "alert" }, what + (error instanceof Error ? error.message : String(error)));
/** A button for something that is so or not. @param {string} text @param {boolean} pressed @param {() => void} onclick */
export const toggle = (text, pressed, onclick) => make("button", { "aria-pressed": String(pressed), onclick }, text);

/** One of several. @param {string} label @param {[string | number, string][]} entries values and words @param {string | number} now @param {(value: string) => void} then */
export function select(label, entries, now, then) {
  const node = /** @type {HTMLSelectElement} */ (make("select", { "aria-label": label, onchange: () => then(node.value) }, ...entries.map(([value, text]) => make("option", { value }, text))));
  node.value = String(now);
  return node;
}

/** Until what is on the page has been drawn: a chart is in the frame after the one in which it has its place. */
export const drawn = () => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(resolve))));

/** Until the browser has nothing to do. */
export const idle = () => new Promise((resolve) => { if ("requestIdleCallback" in window) requestIdleCallback(resolve); else setTimeout(resolve, 100); });

/** Say something to those who do not see the page. @param {string} text */
export function say(text) {
  const said = document.getElementById("said");
  if (said) said.textContent = text;
}

/** Puts text on the clipboard, and says so: shown, too. @param {string} text @param {string} what such as `Link` */
export async function copy(text, what) {
  const done = await Promise.resolve(navigator.clipboard?.writeText(text) ?? Promise.reject()).then(() => true, () => false);
  const words = done ? what + " copied" : `${what} could not be copied: this browser does not let the page`;
  say(words);
  const plate = make("div", { class: "plate", "aria-hidden": "true" }, words);
  document.body.append(plate);
  setTimeout(() => plate.remove(), 1800);
}

/** @typedef {{name: string, value: (row: any) => any, show?: (value: any, row: any) => string, words?: boolean, node?: (row: any) => Node | string}} Column `node` draws a cell */

/**
 * A plain table for some tens of rows; a long list is a `Grid` (grid.js).
 * @param {Column[]} columns @param {any[]} rows @param {string} label
 */
export function table(columns, rows, label) {
  const shown = (/** @type {Column} */ c, /** @type {any} */ row) => (c.show ? c.show(c.value(row), row) : String(c.value(row)));
  const style = (/** @type {Column} */ c) => (c.words ? "words" : null);
  return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label },
    make("table", null,
      make("thead", null, make("tr", null, ...columns.map((c) => make("th", { scope: "col", class: style(c) }, c.name)))),
      make("tbody", null, ...rows.map((row) => make("tr", null, ...columns.map((c) => make("td", { class: style(c) }, c.node?.(row) ?? shown(c, row))))))));
}
