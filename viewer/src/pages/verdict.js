// Does it fit, how fast is it, what next.

import { card, copy, heading, make, note, problem, table } from "../dom.js";
import { bytes, cycles, flops, many, percent, plain, rate, seconds, short, titled } from "../format.js";
import { costs, PARTS } from "../optree.js";
import { partsBar } from "../parts.js";
import { encoded } from "../state.js";
import { waterfall } from "../waterfall.js";

/** @typedef {import("../main.js").Context} Context @typedef {import("../packet.js").Table} Table */

const TOP = 10; // operations
/** What parts of the energy are, by their names in the report (abele/machine/energy.py). @type {Record<string, string>} */
const ENERGY = {
  idle: "chips, idle: their power at rest × the time", matrix: "matrix units", vector: "vector units", memory: "tile memory", exchange: "exchange between tiles",
  links: "links between IPUs", streaming: "streaming memory and host", rest: "around the chips: gateways, electronics, losses (what is left of the machine's average power)" };
const CATEGORIES = ["state", "hyper", "vertex code", "vertex state", "exchange code", "control code", "stack", "values", "temporaries", "exchange buffers"];

/** A link to another page with some of the selection changed. @param {Context} context @param {Partial<import("../state.js").Selection>} changes @param {string} text */
const link = (context, changes, text) => make("a", { href: encoded({ ...context.state.selection, view: "", search: "", ...changes }) }, text);

/** Where the error of such programs was found with another planner than this one's: which. @param {any} p the summary */
const foundWith = (p) => (p.band?.planner && p.band.planner !== p.planner ? ` with planner ${p.band.planner}${p.planner ? `; this is of ${p.planner}` : ""}` : "");

/** @param {any} p the summary */
function cards(p) {
  const m = p.tile_memory, band = p.band ? `, ± ${percent(p.band.median, 1)} as a rule${foundWith(p)}` : "";
  return make("div", { class: "cards even" },
    card("Fits?", m.fits ? "Yes" : "No, " + bytes(m.gap) + " over", `fullest tile ${bytes(m.max)} of ${bytes(m.limit)}`, m.fits ? "good" : "bad"),
    card("Modelled time", seconds(p.seconds), `${cycles(p.cycles)} for ${many(p.samples, "sample")}${band}`),
    card("Throughput", rate(p.throughput), m.fits ? "samples a second, modelled" : "samples a second, if it fitted"),
    card("Arithmetic", percent(p.peak_fraction, 1), `of peak; ${flops(p.flops)}`),
    card("Energy", p.energy_joules.toPrecision(3) + " J", p.seconds ? `${plain(p.energy_joules / p.seconds)} W, modelled` : ""),
    card("Machine", many(p.ipus * p.replicas, "IPU"), `${many(p.replicas, "replica")} of ${p.ipus}, ${plain(p.tiles)} tiles each`),
    p.wall_seconds ? card("Measured here", seconds(p.wall_seconds), "wall time of one run on this computer") : null);
}

/** @param {Context} context @param {any} p */
function memory(context, p) {
  const m = p.tile_memory, names = [...CATEGORIES, ...Object.keys(m.categories).filter((name) => !CATEGORIES.includes(name))];
  const told = p.explanation?.text ?? (typeof p.explanation === "string" ? p.explanation : "");
  return make("section", null, heading("What the fullest tile holds"),
    partsBar(names.map((name) => ({ name, value: m.categories[name] ?? 0 })), `Bytes on tile ${m.fullest_tile} of IPU ${m.fullest_ipu} at its peak`, bytes,
      { limit: [m.limit, `limit ${bytes(m.limit)}`], height: 52, whole: m.max }),
    note(`Shares are of the ${bytes(m.max)} that it holds, ${percent(m.max, m.limit)} of its limit.`),
    note(m.fits ? `${bytes(m.limit - m.max)} are free on it, ${bytes(m.limit - m.mean)} on the mean tile.` : `It is ${bytes(m.gap)} over; the mean tile holds ${bytes(m.mean)}.`),
    told ? make("p", { class: "why" }, told) : null,
    make("p", { class: "links" }, link(context, { page: "memory", ipu: m.fullest_ipu, tile: m.fullest_tile }, `Tile ${m.fullest_tile} of IPU ${m.fullest_ipu}`),
      link(context, { page: "liveness", from: m.peak_moment, to: m.peak_moment }, "The moment of the peak")));
}

/** @param {Context} context @param {any} p */
function time(context, p) {
  return make("section", null, heading("Where the time goes"),
    waterfall(PARTS.filter((name) => p.cycles_by[name]).map((name) => ({ name, value: p.cycles_by[name] })), "Cycles by kind", cycles, { whole: p.cycles, total: "in all" }),
    make("p", { class: "links" }, link(context, { page: "operations" }, "By layer and operation"), link(context, { page: "timeline" }, "Over time")));
}

/** @param {any} p */
function next(p) {
  const advice = p.advice ?? [];
  if (!advice.length) return make("section", { class: "advice" }, heading("What next"), note("No change was compiled, or none of them helps. The command that wrote this report tries them with --advice, and this page says what each gives."));
  const found = (/** @type {(row: any) => string} */ show) => (/** @type {any} */ row) => (row.error ? "–" : show(row));
  const gain = (/** @type {number | null} */ value, /** @type {(x: number) => string} */ show) => (value === null || value === undefined ? "–" : value > 0 ? "−" + show(value) : value < 0 ? "+" + show(-value) : "0");
  return make("section", { class: "advice" }, heading("What next"), table([
    { name: "change", value: (row) => row.text, words: true },
    { name: "for", value: (row) => (row.kind === "fit" ? "room" : "speed"), words: true },
    { name: "fullest tile, of limit", value: found((row) => `${bytes(row.bytes)}, ${percent(row.bytes, p.tile_memory.limit)}`) },
    { name: "change of bytes", value: found((row) => gain(row.gain_bytes, bytes)) },
    { name: "cycles a sample", value: found((row) => gain(row.gain_cycles, short)) },
    { name: "samples a second", value: found((row) => short(row.throughput)) },
    { name: "fits", value: (row) => row.error || (row.fits ? "yes" : "no"), words: true },
    { name: "command", value: (row) => row.command, words: true, node: (row) => row.command ? make("span", { class: "command" },
      make("button", { onclick: () => copy(row.command, "Command"), "aria-label": `Copy the command: ${row.command}` }, "Copy"),
      make("code", null, ...row.command.split(" ").flatMap((/** @type {string} */ word) => [make("span", null, word), " "]))) : "" }], advice, "Advice"),
  note("Each was compiled again with the change; bytes are of the fullest tile, cycles of a sample; what is less is better."));
}

/** @typedef {{name: string, file: string, layer: string, key: string, kind: string, line: number, count: number, named: number, cycles: number, compute: number, weighed: number}} Alike operations of one name and line, the first of them by name; `named` are the cycles of all of that name */

/** @type {WeakMap<Table, Alike[]>} */
const most = new WeakMap();

/** The operations that take most, alike ones of one line together. @param {Table} operations @param {Table} sets */
function mostOf(operations, sets) {
  const before = most.get(operations);
  if (before) return before;
  const found = costs(operations, sets), name = operations.words("name").index, file = operations.words("file").index, line = operations.numbers("line");
  /** @type {Map<number, Map<number, {first: number, count: number, cycles: number, compute: number, weighed: number}>>} by line, then by name and file */
  const by = new Map();
  const files = operations.words("file").distinct.length, named = new Float64Array(operations.words("name").distinct.length);
  for (const row of found.members) {
    let alike = by.get(line[row]);
    if (!alike) by.set(line[row], (alike = new Map()));
    const key = name[row] * files + file[row];
    let group = alike.get(key);
    if (!group) alike.set(key, (group = { first: row, count: 0, cycles: 0, compute: 0, weighed: 0 }));
    named[name[row]] += found.cycles[row];
    group.count++;
    group.cycles += found.cycles[row];
    group.compute += found.parts.compute[row];
    group.weighed += found.weighed[row];
  }
  const all = [...by.values()].flatMap((alike) => [...alike.values()]).filter((group) => group.cycles > 0);
  const word = (/** @type {string} */ column, /** @type {number} */ row) => operations.words(column).at(row);
  const answer = all.sort((a, b) => b.cycles - a.cycles).slice(0, TOP).map(({ first, ...sums }) => ({
    name: word("name", first), file: word("file", first), layer: word("layer", first), key: word("key", first), kind: word("kind", first), line: line[first], named: named[name[first]], ...sums }));
  most.set(operations, answer);
  return answer;
}

/** @param {Context} context @param {any} p @param {Alike[]} found */
function top(context, p, found) {
  const from = (/** @type {Alike} */ { file, line }) => (file ? `${file}:${line}` : "");
  return make("section", null, heading("Operations that take most"), table([
    { name: "operation", value: (group) => group.name, words: true, node: (group) => link(context, { page: "operations", operation: group.key }, (group.name || "(unnamed)") + (/^(call|repeat)$/.test(group.kind) ? " (itself)" : "")) },
    { name: "from", value: from, words: true, node: (group) => (from(group) ? link(context, { page: "operations", search: from(group) }, from(group)) : "") },
    { name: "layer", value: (group) => group.layer + (group.count > 1 ? ` and ${plain(group.count - 1)} more` : ""), words: true },
    { name: "cycles", value: (group) => group.cycles, show: cycles }, { name: "of the time", value: (group) => group.cycles, show: (value) => percent(value, p.cycles) },
    { name: "all of that name", value: (group) => `${cycles(group.named)}, ${percent(group.named, p.cycles)}` },
    { name: "balance", value: (group) => (group.compute ? percent(group.weighed, group.compute) : "–") }], found, "Operations that take most"),
  note("A row is the operations of one name that one line of your program makes; all of that name, from whatever line, are what the console lists."));
}

/** The operations that take most: of a large program in brief. @param {Context} context @param {any} p @returns {Promise<Alike[]>} */
async function found(context, p) {
  const brief = `p/${context.program.id}/brief/operations`;
  if (p.brief?.includes("operations") && context.source.has(brief)) return (await context.source.table(brief)).header.most;
  const [operations, sets] = await Promise.all([context.table("operations"), context.table("sets")]);
  return mostOf(operations, sets);
}

/** @param {any} p */
function energy(p) {
  const parts = Object.entries(p.energy?.parts ?? {}).filter(([, joules]) => joules);
  if (!parts.length) return null;
  const sum = parts.reduce((all, [, joules]) => all + joules, 0);
  return make("section", null, heading("Where the energy goes"), table([
    { name: "part", value: (part) => ENERGY[part[0]] ?? part[0], words: true }, { name: "joules", value: (part) => part[1], show: (value) => value.toPrecision(3) },
    { name: "share", value: (part) => percent(part[1], sum) }], parts, "Energy by part"), note(p.energy.basis));
}

/** @param {Context} context */
function programs(context) {
  const all = context.source.index.programs;
  if (all.length < 2) return null;
  return make("section", null, heading("All programs of this report"), table([
    { name: "program", value: (q) => q.name, words: true, node: (q) => link(context, { program: q.id, operation: null, ipu: null, tile: null, from: null, to: null }, q.name || "(unnamed)") },
    { name: "what", value: (q) => q.mode, words: true }, { name: "machine", value: (q) => q.system, words: true }, { name: "time", value: (q) => q.seconds, show: seconds },
    { name: "samples a second", value: (q) => q.throughput, show: short }, { name: "against this one", value: (q) => (q.id === context.program.id ? "" : (q.throughput / context.program.throughput).toFixed(2) + " ×") },
    { name: "fits", value: (q) => (q.fits ? "yes" : "no"), words: true }], all, "Programs"));
}

/** @param {string[]} texts a long list is folded */
function listed(texts) {
  if (!texts.length) return note("nothing");
  const list = make("ul", null, ...texts.map((text) => make("li", null, text)));
  return texts.length <= 6 ? list : make("details", null, make("summary", null, many(texts.length, "constant")), list);
}

/** What of this is modelled, measured and assumed, apart. @param {any} p */
function trust(p) {
  const told = p.provenance ?? {}, kinds = [["modelled", "charged to the schedule"], ["measured", "by this computer's clock"], ["assumed", "constants without a published value"]];
  return make("section", null, heading("How far to trust this"),
    note(p.band ? `Programs of this kind were off by ${percent(p.band.median, 1)} (median), nine in ten by less than ${percent(p.band.p90, 1)}: ${p.band.basis}${p.planner && foundWith(p) ? `; this one is of planner ${p.planner}` : ""}.` : "No published figures of programs of this kind are known to hold it against."),
    make("div", { class: "three" }, ...kinds.map(([kind, how]) => make("div", null, make("h3", null, `${kind[0].toUpperCase()}${kind.slice(1)}: ${how}`),
      listed(told[kind] ?? [])))));
}

/** @param {any} p */
function compiler(p) {
  if (!p.passes?.length) return null;
  const rows = [
    { name: "pass", value: (/** @type {any} */ row) => row.name, words: true }, { name: "operations before", value: (/** @type {any} */ row) => plain(row.before) },
    { name: "after", value: (/** @type {any} */ row) => plain(row.after) }, { name: "time", value: (/** @type {any} */ row) => seconds(row.seconds ?? 0) }];
  return make("details", null, make("summary", null, `Compiler passes: ${p.passes.length}, ${seconds(p.passes.reduce((/** @type {number} */ sum, /** @type {any} */ row) => sum + (row.seconds ?? 0), 0))}`), table(rows, p.passes, "Compiler passes"));
}

/** @type {import("../main.js").Page} */
export const verdict = {
  name: "verdict",
  title: "Verdict",
  async show(context) {
    const p = await context.json("summary"), late = make("div");
    let left = false; // whoever has gone on to another page waits for that one
    found(context, p).then((groups) => { if (!left) late.replaceChildren(top(context, p, groups)); },
      (error) => late.replaceChildren(problem(error)));
    return { close: () => { left = true; }, node: make("section", { class: "whole" },
      heading(titled(p)), cards(p),
      make("div", { class: "halves" }, memory(context, p), time(context, p)), next(p), late, programs(context),
      make("div", { class: "halves" }, energy(p), make("section", null, heading("Notes"), ...p.notes.map(note), p.planner ? note(p.planner === "poplibs" ? "Planner: poplibs, what the vendor's libraries did." : `Planner: ${p.planner}; --planner poplibs plans only what the vendor's libraries did.`) : null, compiler(p))), trust(p)) };
  },
};
