// Two programs held against each other, from a base (A) to what is shown (B): what B takes more or less, and where.

import { differences } from "../difference.js";
import { card, heading, make, note, select, table } from "../dom.js";
import { bytes, cycles, many, percent, plain, seconds, short, signed, titled } from "../format.js";
import { Grid } from "../grid.js";
import { matching } from "../optree.js";
import { partsBar } from "../parts.js";
import { viewOf, viewWith } from "../state.js";

/**
 * @typedef {import("../main.js").Context} Context
 * @typedef {import("../source.js").Program} Program
 * @typedef {{key: string, name: string, layer: string, a: number | null, b: number | null, difference: number}} Row
 * @typedef {{a: any, b: any, per: "iteration" | "sample", totals: {name: string, a: number, b: number, difference: number}[], operations: Row[]}} Compared
 */

const MOST = 14; // differences in the picture
const BY = [["layer", "layer"], ["operation", "operation"], ["kind", "kind of cycles"]];
const ONLY = [["", "all"], ["changed", "changed"], ["added", "only in B"], ["removed", "only in A"]];
const ONE = "There is one program in this report. Show how it differs from that of another: abele view REPORT --compare BASE";
const REST = "work at the same time, and waiting";

/** What happened to an operation from the one program to the other. @param {Row} row */
const fate = (row) => (row.a === null ? "added" : row.b === null ? "removed" : row.difference ? "changed" : "same");
const WORDS = { added: "only in B", removed: "only in A", changed: "changed", same: "the same" };
/** A change as a factor or a share, whatever says it better. @param {number} a @param {number} b */
const change = (a, b) => (!a || !b || a === b ? "" : b / a >= 2 ? `× ${plain(b / a)}` : a / b >= 2 ? `÷ ${plain(a / b)}` : signed(b / a - 1, (x) => percent(x, 1)));
const clock = (/** @type {any} */ summary) => (summary.clock_hz / 1e9).toPrecision(3) + " GHz";

/** What a program is held against at first: one of another report where there is one, and of its own mode. @param {Program} program @param {Program[]} others */
function suited(program, others) {
  const elsewhere = others.filter((p) => p.report !== program.report), among = elsewhere.length ? elsewhere : others;
  return among.find((p) => p.mode === program.mode) ?? among[0];
}

/** The base, A, and what is shown, B: the program that is chosen is shown. Where no other has been chosen, the base is of
 * the report that --compare named, and of one report the earlier program. @param {Program} program @param {Program[]} others @param {number | null} chosen */
function sides(program, others, chosen) {
  const base = others.find((p) => p.id === chosen);
  if (base) return [base, program];
  return [program, suited(program, others)].sort((p, q) => (q.report ?? 0) - (p.report ?? 0) || p.id - q.id);
}

class ComparePage {
  /** @param {Context} context @param {Program[]} sides A and B @param {Compared} compared @param {[any, any]} summaries */
  constructor(context, sides, compared, summaries) {
    const [a, b] = sides, per = compared.per === "sample" ? "one sample" : "one device iteration";
    this.state = context.state;
    this.compared = compared;
    /** Cycles as text: those of a sample may be few. */
    this.show = (/** @type {number} */ x) => (compared.per === "sample" && Math.abs(x) < 1e4 ? plain(x) + " cycles" : cycles(x));
    this.summaries = summaries;
    this.rows = compared.operations;
    this.fates = this.rows.map(fate);
    /** What is in sight now. */
    this.drawn = "";
    this.filtered = "";
    const { programs } = context.source.index;
    const choice = (/** @type {string} */ label, /** @type {number} */ chosen, /** @type {(id: number) => void} */ set) =>
      make("label", null, label + " ", select(label, programs.map((p) => [p.id, titled(p)]), chosen, (id) => set(Number(id))));
    this.picture = make("div");
    this.by = this.#buttons("Differences by", BY, "by");
    this.only = this.#buttons("Operations that are", ONLY, "only");
    this.search = /** @type {HTMLInputElement} */ (make("input", { type: "search", placeholder: "Name, layer or /regex/", "aria-label": "Search operations", size: 30,
      oninput: () => this.state.set({ search: this.search.value }, true) }));
    this.problem = make("p", { class: "note bad", role: "status" });
    const text = (/** @type {number | null} */ value) => (value === null ? "–" : plain(value));
    const column = compared.per === "sample" ? "cycles/sample in" : "cycles in";
    const to = (/** @type {Program} */ shown) => ({ program: shown.id, other: shown === a ? b.id : a.id });
    const of = (/** @type {keyof Row} */ name) => (/** @type {number} */ row) => /** @type {any} */ (this.rows[row][name]);
    const least = (/** @type {"a" | "b"} */ side) => (/** @type {number} */ x, /** @type {number} */ y) => (this.rows[x][side] ?? -1) - (this.rows[y][side] ?? -1);
    const byWords = (/** @type {"name" | "layer"} */ name) => (/** @type {number} */ x, /** @type {number} */ y) => this.rows[x][name].localeCompare(this.rows[y][name]);
    this.grid = new Grid({
      label: "Operations of both programs", what: "operation", height: 420, sorted: 5,
      columns: [
        { name: "operation", width: "minmax(160px, 2fr)", words: true, text: of("name"), title: of("key"), order: byWords("name") },
        { name: "layer", width: "minmax(160px, 3fr)", words: true, text: of("layer"), order: byWords("layer") },
        { name: "what", width: "90px", words: true, text: (row) => WORDS[this.fates[row]], order: (x, y) => this.fates[x].localeCompare(this.fates[y]) },
        { name: column + " A", width: "160px", text: (row) => text(this.rows[row].a), order: least("a") },
        { name: column + " B", width: "160px", text: (row) => text(this.rows[row].b), order: least("b") },
        { name: "difference", width: "140px", text: (row) => signed(this.rows[row].difference, plain), order: (x, y) => Math.abs(this.rows[x].difference) - Math.abs(this.rows[y].difference) },
        { name: "change", width: "90px", text: (row) => change(this.rows[row].a ?? 0, this.rows[row].b ?? 0), order: (x, y) => this.#ratio(x) - this.#ratio(y) },
      ],
      chosen: (row) => this.state.set({ operation: this.rows[row].key }, true),
      toggled: (row) => this.state.set({ ...to(this.rows[row].b === null ? a : b), operation: this.rows[row].key, page: "operations", view: "", search: "" }),
    });
    this.node = make("section", null,
      make("p", { class: "tools" }, choice("A", a.id, (id) => this.state.set({ program: id === b.id ? a.id : b.id, other: id })),
        choice("B", b.id, (id) => this.state.set({ program: id, other: id === a.id ? b.id : a.id })),
        make("button", { onclick: () => this.state.set(to(a)) }, "Swap"), make("span", { class: "note" }, "A is the base, B what is held against it.")),
      compared.per === "sample" ? make("p", { class: "notice" }, make("b", null, `One device iteration is ${many(compared.a.samples, "sample")} in A and ${plain(compared.b.samples)} in B. `),
        "So time and cycles on this page are those of one sample; those of an iteration say nothing about which of the two is the faster.") : null,
      this.#cards(),
      summaries[0].clock_hz === summaries[1].clock_hz ? null : note(`Their clocks differ, ${clock(summaries[0])} and ${clock(summaries[1])}: as many cycles are not as much time.`),
      heading("From A to B: cycles of " + per), this.by.node, this.picture,
      heading("Operations: cycles of " + per), make("p", { class: "tools" }, this.search, this.only.node), this.problem, this.grid.node,
      note("Operations are matched by their keys: module path, pass, name, and place among equals. Enter or a double click opens one in Operations, in B, or in A if only A has it."),
      heading("What the fullest tile holds"), this.#memory());
    this.update(this.state.selection, null);
  }

  /** @param {number} row */
  #ratio(row) {
    const { a, b } = this.rows[row];
    return a === null ? Infinity : b === null ? -1 : b / (a || 1);
  }

  /** Buttons for one of several, kept in `view` under `name`. @param {string} label @param {string[][]} choices @param {string} name */
  #buttons(label, choices, name) {
    const standard = choices[0][0];
    const buttons = choices.map(([value, text]) => make("button", { onclick: () => this.state.set({ view: viewWith(this.state.selection, { [name]: value === standard ? null : value }) }) }, text));
    const node = make("span", { class: "tools", role: "group", "aria-label": label }, make("span", null, label), ...buttons);
    const now = () => viewOf(this.state.selection).get(name) ?? standard;
    return { node, now, press: () => choices.forEach(([value], i) => buttons[i].setAttribute("aria-pressed", String(value === now()))) };
  }

  #cards() {
    const [a, b] = this.summaries, [m, n] = [a.tile_memory, b.tile_memory], clocked = a.clock_hz === b.clock_hz;
    const { a: c, b: d, per } = this.compared;
    const better = (/** @type {number} */ difference) => (difference ? (difference > 0 ? "good" : "bad") : undefined);
    const same = (/** @type {number} */ difference, /** @type {(x: number) => string} */ show) => (difference ? signed(difference, show) : "the same");
    const fits = (/** @type {any} */ memory) => (memory.fits ? "fits" : `${bytes(memory.gap)} over`);
    return make("div", { class: "cards" },
      card("Throughput", change(a.throughput, b.throughput) || "the same", `${short(a.throughput)} → ${short(b.throughput)} samples a second`, better(b.throughput - a.throughput)),
      ...(per === "sample" ? [
        card("Time of a sample", change(c.seconds_per_sample, d.seconds_per_sample) || "the same",
          `${seconds(c.seconds_per_sample)} → ${seconds(d.seconds_per_sample)}; an iteration: ${seconds(a.seconds)} → ${seconds(b.seconds)}`, better(c.seconds_per_sample - d.seconds_per_sample)),
        card("Cycles of a sample", same(d.cycles_per_sample - c.cycles_per_sample, short),
          `${plain(c.cycles_per_sample)} → ${plain(d.cycles_per_sample)}; an iteration: ${plain(a.cycles)} → ${plain(b.cycles)}`, better(clocked ? c.cycles_per_sample - d.cycles_per_sample : 0)),
      ] : [
        card("Modelled time", change(a.seconds, b.seconds) || "the same", `${seconds(a.seconds)} → ${seconds(b.seconds)}`, better(a.seconds - b.seconds)),
        card("Cycles", same(b.cycles - a.cycles, short), `${plain(a.cycles)} → ${plain(b.cycles)}`, better(clocked ? a.cycles - b.cycles : 0)),
      ]),
      card("Fullest tile", same(n.max - m.max, bytes), `${bytes(m.max)} (${fits(m)}) → ${bytes(n.max)} (${fits(n)})`, better(m.max - n.max)),
      card("Samples of an iteration", same(b.samples - a.samples, plain), `${plain(a.samples)} → ${plain(b.samples)}`));
  }

  #memory() {
    const names = [...new Set(this.summaries.flatMap((summary) => Object.keys(summary.tile_memory.categories)))];
    const held = (/** @type {number} */ side, /** @type {string} */ name) => this.summaries[side].tile_memory.categories[name] ?? 0;
    const most = Math.max(...this.summaries.map((summary) => Math.max(summary.tile_memory.max, summary.tile_memory.limit)));
    const bars = ["A", "B"].map((letter, side) => {
      const { limit, max } = this.summaries[side].tile_memory;
      const bar = partsBar(names.map((name) => ({ name, value: held(side, name) })), `${letter}: bytes on the fullest tile`, bytes, { limit: [limit, `limit ${bytes(limit)}`], height: 46, whole: max });
      bar.style.width = (100 * Math.max(limit, max)) / most + "%"; // both on one scale
      return make("div", null, make("h3", null, `${letter}: ${bytes(max)}`), bar);
    });
    return make("div", null, ...bars, note("Shares are of all that the tile holds."), table([
      { name: "category", value: (name) => name, words: true },
      { name: "A", value: (name) => held(0, name), show: bytes },
      { name: "B", value: (name) => held(1, name), show: bytes },
      { name: "difference", value: (name) => held(1, name) - held(0, name), show: (value) => signed(value, bytes) }], names, "Bytes by category"));
  }

  /** The largest differences by what was chosen, the rest of them, and what no single operation has. @param {string} by */
  #steps(by) {
    const [all, ...kinds] = this.compared.totals.filter((total) => total.name !== "tile bytes");
    /** @type {import("../difference.js").Step[]} */
    let steps;
    if (by === "kind") steps = kinds.map(({ name, difference }) => ({ name, difference }));
    else if (by === "operation") {
      steps = this.rows.map((row) => ({ name: [row.layer, row.name].filter(Boolean).join(" "), difference: row.difference, picked: () => this.state.set({ operation: row.key }) }));
    } else {
      /** @type {Map<string, number>} */
      const layers = new Map();
      for (const row of this.rows) layers.set(row.layer, (layers.get(row.layer) ?? 0) + row.difference);
      steps = [...layers].map(([layer, difference]) => ({ name: layer || "(no layer)", difference, picked: () => this.state.set({ search: layer }) }));
    }
    steps = steps.filter((step) => step.difference).sort((x, y) => Math.abs(y.difference) - Math.abs(x.difference));
    const shown = steps.slice(0, MOST), others = steps.slice(MOST), sum = (/** @type {typeof steps} */ each) => each.reduce((total, step) => total + step.difference, 0);
    if (others.length) shown.push({ name: `${plain(others.length)} others`, difference: sum(others) });
    const rest = all.difference - sum(shown);
    const made = [], { show } = this;
    if (Math.abs(rest) > 1e-9 * Math.max(all.a, all.b)) {
      const added = (/** @type {"a" | "b"} */ side) => show(this.rows.reduce((total, row) => total + (row[side] ?? 0), 0));
      shown.push({ name: REST, difference: rest, more: "is of no single operation, see below" });
      made.push(note(`Why "${REST}": the cycles of all operations add up to ${added("a")} in A and ${added("b")} in B, but ${show(all.a)} and ${show(all.b)} pass. ` +
        "Where IPUs work at the same time, as the stages of a pipeline do, the same cycles count for each of them, so the sum is larger than the time that passes; where IPUs wait, no operation counts. " +
        "This bar is what changed in that, and it may be larger than the whole difference: + is less work at the same time or more waiting, − is more work at the same time or less waiting."));
    }
    return [differences({ name: "A", value: all.a }, { name: "B", value: all.b }, shown, `Differences by ${by}`, show), ...made];
  }

  /** @param {import("../state.js").Selection} now @param {import("../state.js").Selection | null} before */
  update(now, before) {
    if (before && now.other !== before.other) return false;
    for (const each of [this.by, this.only]) each.press();
    const by = this.by.now(), only = this.only.now();
    if (by !== this.drawn) this.picture.replaceChildren(...this.#steps((this.drawn = by)));
    if (!before || now.search !== before.search || only !== this.filtered) {
      if (this.search.value !== now.search) this.search.value = now.search;
      this.filtered = only;
      this.#filter(now.search, only);
    }
    const chosen = now.operation === null ? -1 : this.rows.findIndex((row) => row.key === now.operation);
    if (chosen >= 0 && chosen !== this.grid.current) this.grid.reveal(chosen);
    return true;
  }

  /** @param {string} search @param {string} only */
  #filter(search, only) {
    let has;
    try { has = matching(search); } catch { has = null; }
    this.problem.textContent = has ? "" : "This is not a regular expression.";
    const rows = [];
    for (let row = 0; row < this.rows.length; row++) {
      const { name, layer } = this.rows[row];
      if ((!only || this.fates[row] === only) && (!has || has(name) || has(layer))) rows.push(row);
    }
    this.grid.fill(Int32Array.from(rows));
  }
}

/** @type {import("../main.js").Page} */
export const compare = {
  name: "compare",
  title: "Compare",
  missing: (context) => (context.source.index.programs.length < 2 ? ONE : ""),
  async show(context) {
    const { source, state, program } = context;
    const others = source.index.programs.filter((p) => p.id !== program.id);
    const [a, b] = sides(program, others, state.selection.other);
    const [compared, ...summaries] = await Promise.all([source.json(`compare/${a.id}/${b.id}`), source.json(`p/${a.id}/summary`), source.json(`p/${b.id}/summary`)]);
    const page = new ComparePage(context, [a, b], compared, summaries);
    return { node: page.node, update: (now, before) => page.update(now, before) };
  },
};
