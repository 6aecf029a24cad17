// When tensors are live: a row for each, with a bar over the moments of the chart above.

import { make } from "../dom.js";
import { Grid } from "../grid.js";
import { size } from "./tensor_grid.js";
import { middleOut } from "./tensors.js";

/** Pixels left of the bars, and right of them beside the scroll bar: what is drawn above is set in as far. */
export const LEFT = 360, RIGHT = 9;

/**
 * @param {{
 *   tensors: import("./tensors.js").Tensors, on: Float64Array, line: import("./moments.js").MomentLine, range: () => [number, number],
 *   axis: () => import("./moments.js").Axis, peak: number, chosen: (row: number) => void, opened: (row: number) => void,
 * }} seen
 */
export function livesGrid(seen) {
  const { tensors, on, line } = seen;
  const bar = (/** @type {number} */ row) => {
    const range = seen.range(), axis = seen.axis(), share = (/** @type {number} */ moment) => Math.max(0, Math.min(1, line.share(moment, range, axis)));
    const from = tensors.always[row] ? 0 : share(tensors.first[row]), to = tensors.always[row] ? 1 : share(tensors.last[row] + 1), peak = line.share(seen.peak + 0.5, range, "moments");
    const box = make("div", { class: "lives" });
    const x = axis === "moments" ? peak : (line.share(seen.peak, range, axis) + line.share(seen.peak + 1, range, axis)) / 2;
    if (x >= 0 && x <= 1) box.append(make("b", { style: `left:${100 * x}%` }));
    if (tensors.always[row] || (tensors.last[row] >= range[0] && tensors.first[row] < range[1])) {
      box.append(make("i", { class: tensors.categories.at(row) === "values" ? "" : "hatched", style: `left:${100 * from}%;width:${100 * (to - from)}%;background-color:var(--${tensors.categories.at(row).replace(/[^a-z]/g, "-")},var(--hyper))` }));
    }
    return box;
  };
  const names = (/** @type {number} */ a, /** @type {number} */ b) => (tensors.name(a) < tensors.name(b) ? -1 : tensors.name(a) > tensors.name(b) ? 1 : 0);
  const grid = new Grid({
    label: "When tensors are live", height: 270, sorted: 2,
    columns: [
      { name: "Tensor", width: "188px", words: true, text: (r) => middleOut(tensors.name(r), 24), title: (r) => `${tensors.name(r)} ${tensors.types.at(r)} ${tensors.where(r)}`, order: names },
      { name: "Stays", width: "72px", words: true, text: (r) => (tensors.always[r] ? "always" : tensors.long(r) ? "long" : ""),
        title: (r) => (tensors.always[r] ? "the whole program" : tensors.long(r) ? "half of the program or more: one to compute again, to stream, or to free earlier" : ""),
        value: (r) => tensors.last[r] - tensors.first[r] },
      { name: "Bytes", width: `${LEFT - 188 - 72 - 9}px`, text: (r) => size(on[r]), value: (r) => on[r] },
      { name: "Live", width: "minmax(0,1fr)", words: true, text: (r) => tensors.life(r), node: bar, title: (r) => `live ${tensors.life(r)}`, value: (r) => tensors.first[r] * (tensors.moments + 1) + tensors.last[r] },
    ],
    chosen: seen.chosen, toggled: seen.opened,
  });
  return grid;
}
