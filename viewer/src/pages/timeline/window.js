// What part of the line is in sight. All charts of the page share one window.

import { at } from "../../moments.js";

/** @typedef {import("../../moments.js").Axis} Axis */

export class Window {
  /** @param {Axis} axis @param {number[] | null} range from and to; null: all */
  constructor(axis, range) {
    this.axis = axis;
    this.from = 0;
    this.to = this.end;
    if (range) this.set(range[0], range[1]);
  }
  /** The end of the program. */
  get end() {
    return Math.max(1, this.axis.edges[this.axis.count]);
  }
  get whole() {
    return this.from <= 0 && this.to >= this.end;
  }
  /** Show from here to there, as far as there is something. @param {number} from @param {number} to */
  set(from, to) {
    const least = Math.min(this.end, this.axis.name === "moments" ? 0.25 : 8), span = Math.min(this.end, Math.max(least, to - from));
    this.from = Math.max(0, Math.min(this.end - span, from));
    this.to = this.from + span;
  }
  /** @param {number} x pixel that stays where it is @param {number} factor @param {number} width */
  zoom(x, factor, width) {
    const fixed = this.position(x, width), span = (this.to - this.from) / factor;
    this.set(fixed - (x / width) * span, fixed + (1 - x / width) * span);
  }
  /** @param {number} pixels that what is seen moves to the right @param {number} width */
  pan(pixels, width) {
    const moved = (pixels * (this.to - this.from)) / width;
    this.set(this.from - moved, this.to - moved);
  }
  /** @param {number} x @param {number} width */
  position(x, width) {
    return this.from + (x * (this.to - this.from)) / width;
  }
  /** @param {number} position @param {number} width */
  pixel(position, width) {
    return ((position - this.from) * width) / (this.to - this.from);
  }
  /** The first moment in sight and the last. @returns {[number, number]} */
  moments() {
    const last = at(this.axis, this.to);
    return [this.from <= 0 ? 0 : at(this.axis, this.from), last > 0 && this.axis.edges[last] >= this.to ? last - 1 : last];
  }
  /** The same moments along another axis. @param {Axis} axis */
  along(axis) {
    const there = (/** @type {number} */ position) => {
      const i = at(this.axis, position), [a, b] = [this.axis.edges[i], this.axis.edges[i + 1]];
      return axis.edges[i] + (b > a ? (position - a) / (b - a) : 0) * (axis.edges[i + 1] - axis.edges[i]);
    };
    return new Window(axis, this.whole ? null : [there(this.from), there(this.to)]);
  }
}
