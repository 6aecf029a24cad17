// A table of any length: only the rows in sight are elements. Sorting and filtering work on arrays of row numbers.
// With `fold` it is a tree: whoever owns it fills it with the rows in sight, and folds and unfolds them.

import { make, say } from "./dom.js";
import { many } from "./format.js";
import { sortedBy } from "./order.js";

const ROW = 24; // pixels
const TALLEST = 8_000_000; // browsers stop at some tens of millions of pixels

/**
 * @typedef {{
 *   name: string, width: string, words?: boolean,
 *   text: (row: number) => string, order?: (a: number, b: number) => number, value?: (row: number) => number,
 *   title?: (row: number) => string, indent?: (row: number) => number, node?: (row: number) => Node,
 * }} GridColumn
 * `value` is a number to sort by, or `order` compares two rows; `text` is what a cell shows, and says where `node` draws it; `indent` steps from the left.
 * @typedef {{
 *   label: string, columns: GridColumn[], height?: number, sorted?: number | null, down?: boolean,
 *   chosen?: (row: number) => void, toggled?: (row: number) => void,
 *   fold?: (row: number) => boolean | null, above?: (row: number) => number,
 *   ordered?: (column: number, down: boolean) => void, what?: string,
 * }} GridOptions
 * `chosen` when a row becomes the current one, `toggled` by Enter, a double click or its fold mark; `fold` says whether a
 * row is open, folded, or (null) neither; `above` the row that it is in, or -1; `ordered` is told of a heading that was
 * pressed, and fills the grid in that order; `what` the rows are, such as `operation`.
 */

let made = 0;

export class Grid {
  /** @param {GridOptions} options */
  constructor(options) {
    this.options = options;
    /** @type {Int32Array} */
    this.all = new Int32Array(0);
    this.rows = this.all;
    this.by = options.sorted ?? null;
    this.down = options.down ?? true;
    this.current = -1;
    this.sought = -1; // to be brought into sight when the table has a height
    const template = options.columns.map((c) => c.width).join(" ");
    this.head = make("div", { class: "grid-head", role: "row" }, ...options.columns.map((c, i) =>
      make("div", { role: "columnheader", class: c.words ? "words" : null },
        make("button", { onclick: () => this.sort(i) }, c.name))));
    this.filler = make("div", { class: "grid-filler" });
    this.body = make("div", { class: "grid-body", role: "rowgroup" });
    this.count = make("p", { class: "note", "aria-live": "polite" });
    this.scroller = make("div", { class: "grid-scroll", tabindex: 0, role: options.fold ? "treegrid" : "grid", "aria-label": options.label,
      style: `height:${options.height ?? 480}px` }, this.head, this.filler, this.body);
    this.node = make("div", { class: "grid" }, this.scroller, this.count);
    this.node.style.setProperty("--columns", template);
    this.scroller.addEventListener("scroll", () => this.#soon());
    this.scroller.addEventListener("keydown", (e) => this.#key(e));
    new ResizeObserver(() => this.#soon()).observe(this.scroller);
    this.pending = false;
    this.id = "row-" + ++made;
  }

  /** The rows to show, in the order in which they come unless a column sorts them.
   * @param {Int32Array} rows */
  fill(rows) {
    this.all = rows;
    this.#order();
  }

  /** @param {number} column the same again turns the order round */
  sort(column) {
    this.down = this.by === column ? !this.down : !this.options.columns[column].words;
    this.by = column;
    if (this.options.ordered) this.options.ordered(column, this.down);
    else this.#order();
  }

  /** Make a row the current one and bring it into sight. @param {number} row */
  reveal(row) {
    this.current = row;
    this.sought = row;
    if (this.scroller.clientHeight) this.#scrollTo();
    this.#soon();
  }

  #scrollTo() {
    const place = this.rows.indexOf(this.sought);
    this.sought = -1;
    if (place < 0) return;
    const top = place * ROW * this.#scale(), high = this.scroller.clientHeight - ROW;
    if (top < this.scroller.scrollTop || top + ROW > this.scroller.scrollTop + high) this.scroller.scrollTop = Math.max(0, top - high / 2);
  }

  /** Draw the rows in sight anew: what their cells show has changed. */
  repaint() {
    this.#soon();
  }

  #order() {
    const { columns, ordered, what = "row" } = this.options;
    this.rows = this.all;
    if (this.by !== null && !ordered) {
      const { order, value } = columns[this.by], sign = this.down ? -1 : 1;
      if (value) this.rows = sortedBy(this.all, value, this.down);
      else if (order) this.rows = Int32Array.from(this.all).sort((a, b) => sign * order(a, b) || a - b);
    }
    [...this.head.children].forEach((head, i) =>
      i === this.by ? head.setAttribute("aria-sort", this.down ? "descending" : "ascending") : head.removeAttribute("aria-sort"));
    this.filler.style.height = Math.min(TALLEST, this.rows.length * ROW) + "px";
    this.scroller.setAttribute("aria-rowcount", String(this.rows.length));
    this.count.textContent = many(this.rows.length, what);
    this.#soon();
  }

  /** Pixels that are scrolled for each pixel of rows: below 1 for lists taller than browsers allow. */
  #scale() {
    return Math.min(1, TALLEST / Math.max(1, this.rows.length * ROW));
  }

  #soon() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; this.#paint(); });
  }

  #paint() {
    const { columns, fold, toggled, chosen } = this.options;
    if (!this.scroller.clientHeight) return;
    if (this.sought >= 0) this.#scrollTo();
    const top = this.scroller.scrollTop, scale = this.#scale();
    const seen = Math.ceil(this.scroller.clientHeight / ROW) + 2;
    const first = Math.max(0, Math.min(this.rows.length - seen + 2, Math.floor(top / scale / ROW)));
    const fresh = [];
    for (let place = first; place < Math.min(this.rows.length, first + seen); place++) {
      const row = this.rows[place];
      const open = fold?.(row) ?? null, level = columns[0].indent?.(row);
      fresh.push(make("div", { role: "row", class: "grid-row", "aria-rowindex": place + 1, "aria-selected": row === this.current ? "true" : null,
        id: row === this.current ? this.id : null, "aria-expanded": open === null ? null : String(open), "aria-level": level === undefined ? null : level + 1,
        onclick: () => { this.current = row; chosen?.(row); this.#soon(); }, ondblclick: () => toggled?.(row) },
        ...columns.map((c) => {
          const cell = make("div", { role: "gridcell", class: c.words ? "words" : null, title: c.title?.(row) ?? c.text(row) });
          if (c.indent) cell.style.paddingLeft = 8 + 14 * c.indent(row) + "px";
          if (c.indent && fold) cell.append(make("span", { class: "fold", "aria-hidden": "true", onclick: open === null ? null : (/** @type {Event} */ e) => { e.stopPropagation(); toggled?.(row); } }, open === null ? "" : open ? "▾" : "▸"));
          cell.append(c.node?.(row) ?? c.text(row));
          return cell;
        })));
    }
    this.scroller.setAttribute("aria-activedescendant", fresh.some((each) => each.id) ? this.id : "");
    this.body.style.transform = `translateY(${Math.round(top - (top / scale - first * ROW) * 1)}px)`;
    this.body.replaceChildren(...fresh);
  }

  /** @param {KeyboardEvent} e */
  #key(e) {
    if (e.target !== this.scroller) return;
    const place = this.rows.indexOf(this.current), page = Math.floor(this.scroller.clientHeight / ROW) - 1;
    const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[e.key];
    if (e.metaKey || e.ctrlKey || e.altKey || !this.rows.length) return;
    if (step !== undefined) {
      const next = this.rows[Math.max(0, Math.min(this.rows.length - 1, place < 0 ? 0 : place + step))];
      this.reveal(next);
      this.options.chosen?.(next);
      say(this.options.columns.map((c) => `${c.name} ${c.text(next)}`).join(", "));
    } else if ((e.key === "Enter" || e.key === " ") && place >= 0) this.options.toggled?.(this.current);
    else if (e.key === "ArrowRight" && place >= 0 && this.options.fold?.(this.current) === false) this.options.toggled?.(this.current);
    else if (e.key === "ArrowLeft" && place >= 0 && this.options.fold?.(this.current)) this.options.toggled?.(this.current);
    else if (e.key === "ArrowLeft" && place >= 0 && (this.options.above?.(this.current) ?? -1) >= 0) {
      const above = /** @type {number} */ (this.options.above?.(this.current));
      this.reveal(above);
      this.options.chosen?.(above);
    } else return;
    e.preventDefault();
    e.stopPropagation();
  }
}
