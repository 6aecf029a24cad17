// Long work in slices: a generator that yields where it may pause, so that the page follows the mouse meanwhile.

const SLICE = 16; // ms

/** The browser's turn. @returns {Promise<void>} */
export const breath = () => /** @type {any} */ (globalThis).scheduler?.yield?.() ?? new Promise((resolve) => setTimeout(resolve));

/** All of it now. @template T @param {Generator<void, T, void>} work @returns {T} */
export function atOnce(work) {
  for (;;) {
    const { done, value } = work.next();
    if (done) return /** @type {T} */ (value);
  }
}

/** With pauses. @template T @param {Generator<void, T, void>} work @returns {Promise<T>} */
export async function inSlices(work) {
  for (let begun = performance.now(); ;) {
    const { done, value } = work.next();
    if (done) return /** @type {T} */ (value);
    if (performance.now() - begun < SLICE) continue;
    await breath();
    begun = performance.now();
  }
}
