// What a page keeps for itself in the address: names with numbers or words, as `window-10-2500_axis-moments`.

/** @param {string} text @returns {Map<string, string[]>} */
export function parts(text) {
  return new Map(text.split("_").filter(Boolean).map((part) => { const [name, ...values] = part.split("-"); return [name, values]; }));
}

/** The text with some of it changed; null takes a part away. @param {string} text @param {Record<string, (string | number)[] | null>} changes */
export function changed(text, changes) {
  const all = /** @type {Map<string, (string | number)[]>} */ (parts(text));
  for (const [name, values] of Object.entries(changes)) if (values) all.set(name, values); else all.delete(name);
  return [...all].map(([name, values]) => [name, ...values].join("-")).join("_");
}

/** The numbers of a part, or null where they are not `count` of them. @param {string} text @param {string} name @param {number} count */
export function numbers(text, name, count) {
  const values = parts(text).get(name)?.map(Number);
  return values && values.length === count && values.every((v) => Number.isFinite(v) && v >= 0) ? values : null;
}

/** The first word of a part, or the other. @param {string} text @param {string} name @param {string} other */
export const word = (text, name, other) => parts(text).get(name)?.[0] ?? other;
