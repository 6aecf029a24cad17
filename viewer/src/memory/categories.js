// The kinds of memory, always in the same order, colour and hatch.

/** Kinds, in the order in which they are stacked. */
export const CATEGORIES = ["state", "hyper", "vertex code", "vertex state", "exchange code", "control code", "stack", "values", "temporaries", "exchange buffers"];

/** What a tile holds for a while at its own peak, whose kinds the store does not part. */
export const PASSING = "for a while";

/** Colour and hatch of a kind. @param {string} name @returns {[string, number]} */
export function look(name) {
  if (name === PASSING) return ["values", CATEGORIES.indexOf("values")];
  const place = CATEGORIES.indexOf(name);
  return place < 0 ? ["hyper", 1] : [name, place];
}

/** The kinds among `names`, in their order; ones not known here come last. @param {string[]} names */
export const inOrder = (names) => [...CATEGORIES.filter((name) => names.includes(name)), ...names.filter((name) => !CATEGORIES.includes(name))];
