// The list of what lies on a tile, with its search and what is told of the one that is chosen.

import { heading, make, select } from "../dom.js";
import { bytes, many } from "../format.js";
import { encoded, viewOf, viewWith } from "../state.js";
import { size, TensorGrid } from "./tensor_grid.js";

/**
 * @typedef {{
 *   tensors: import("./tensors.js").Tensors, state: import("../state.js").State, tile: string, ipu: number, on: Float64Array, moment: () => number,
 *   letter: (row: number) => string, chosen: () => number | null, choose: (row: number) => void,
 * }} ListedOf
 * `on` are the bytes of each tensor on the tile, which is called `tile` and is of `ipu`.
 * @param {ListedOf} of @param {string} heads the column of the tile
 */
export function tensorList(of, heads) {
  const { tensors, state, on, ipu } = of;
  const grid = new TensorGrid({
    tensors, on, letter: of.letter, chosen: of.choose,
    opened: (row) => { const key = tensors.key(row); if (key !== null) state.set({ page: "operations", operation: key, view: "" }); },
  }, heads);
  const search = searchBox(state);
  const scope = choice(state, "of", "Which tensors", [["", "on this tile"], ["ipu", `of IPU ${ipu}`], ["all", "of all IPUs"]]);
  const when = choice(state, "when", "When live", [["", "at the moment"], ["any", "at any time"]]);
  const by = choice(state, "by", "Grouped by", [["", "not grouped"], ["kind", "by kind"], ["layer", "by layer"]]);
  const total = make("p", { class: "note" }), about = make("div");
  const refresh = () => {
    const view = viewOf(state.selection), moment = of.moment(), hit = tensors.matching(state.selection.search);
    const everywhere = view.get("of") === "all", ofIpu = view.get("of") === "ipu", always = view.get("when") === "any", group = view.get("by");
    for (const box of [search, scope, when, by]) box.follow();
    const rows = tensors.rows((r) =>
      (everywhere || tensors.ipu[r] === ipu) && (everywhere || ofIpu || on[r] !== 0) && (always || tensors.alive(r, moment)) && hit(r));
    grid.show(rows, group === "kind" || group === "layer" ? group : "none");
    const sum = (/** @type {ArrayLike<number>} */ values) => size(rows.reduce((all, r) => all + values[r], 0));
    total.textContent = `${many(rows.length, "storage")}${always ? "" : ` live at moment ${moment}`}: ${sum(on)} on ${of.tile}, ${sum(tensors.bytes)} on all tiles.`;
    const chosen = of.chosen();
    if (chosen !== null && grid.grid.current !== chosen) grid.grid.reveal(chosen);
    about.replaceChildren(...(chosen === null ? [] : [told(tensors, chosen, state.selection)]));
  };
  return { refresh, nodes: [heading("What lies there"), make("div", { class: "tools" }, search.node, scope.node, when.node, by.node), total, grid.node, about] };
}

/** A box to search in, which the selection shares. @param {import("../state.js").State} state */
export function searchBox(state) {
  const node = /** @type {HTMLInputElement} */ (make("input", { type: "search", placeholder: "name, type, layer, file", "aria-label": "Search tensors",
    oninput: () => state.set({ search: node.value }, true) }));
  return { node, follow: () => { if (document.activeElement !== node) node.value = state.selection.search; } };
}

/** A choice that the page keeps in the address. @param {import("../state.js").State} state @param {string} option @param {string} label @param {[string, string][]} entries value and words; the first is usual */
export function choice(state, option, label, entries) {
  const node = select(label, entries, "", (value) => state.set({ view: viewWith(state.selection, { [option]: value }) }, true));
  const follow = () => { const now = viewOf(state.selection).get(option) ?? ""; node.value = entries.some(([value]) => value === now) ? now : ""; };
  follow();
  return { node, follow };
}

/** @param {import("./tensors.js").Tensors} tensors @param {number} row @param {import("../state.js").Selection} here */
function told(tensors, row, here) {
  const key = tensors.key(row), layer = tensors.layer(row);
  return make("div", { class: "made" },
    make("b", null, tensors.name(row)),
    ` ${tensors.types.at(row)} ${tensors.categories.at(row)}: ${bytes(tensors.bytes[row])} on all tiles, at most ${bytes(tensors.most[row])} on one; live ${tensors.life(row)}. `,
    ...(key === null ? ["Nothing in the program makes it: it is there from the beginning. "]
      : ["Made by ", make("a", { href: encoded({ ...here, page: "operations", operation: key, view: "" }) }, tensors.operationName(row)), ` ${tensors.where(row)} ${layer ? "in " + layer : ""}. `]),
    ...(tensors.always[row] ? [] : [make("a", { href: encoded({ ...here, page: "liveness", from: tensors.first[row], to: tensors.last[row], view: "" }) }, "Its life")]));
}
