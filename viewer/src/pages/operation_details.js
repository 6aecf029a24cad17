// What is known of one operation, of a group of them, or of the whole program: beside the tree.

import { heading, make, note, table as plainTable } from "../dom.js";
import { bytes, cycles, flops, many, percent, plain, short } from "../format.js";
import { PARTS, placeOf, totalOf } from "../optree.js";
import { partsBar } from "../parts.js";
import { encoded } from "../state.js";

const AROUND = 4; // lines of source before and after
const MOST = 40; // rows of a table here

/** @typedef {import("../optree.js").Costs} Costs @typedef {import("../optree.js").Tree} Tree @typedef {import("../main.js").Context} Context */

/**
 * @param {Context} context @param {Costs} found @param {Tree} tree @param {number} row of an operation, or -1
 * @param {number} group or -1 @param {any} summary
 */
export function detailsOf(context, found, tree, row, group, summary) {
  if (row >= 0) return ofOperation(context, found, row, summary);
  return ofGroup(found, tree, group, summary);
}

/** @param {[string, string | Node | null][]} rows */
const facts = (rows) => make("dl", null, ...rows.flatMap(([name, value]) => (value ? [make("dt", null, name), make("dd", null, value)] : [])));

/** @param {Costs} found @param {Tree} tree @param {number} group @param {any} summary */
function ofGroup(found, tree, group, summary) {
  const of = (/** @type {Float64Array} */ values, /** @type {string} */ name) => (group < 0 ? totalOf(values) : tree.sum(name, values)[group]);
  const whole = of(found.cycles, "cycles"), size = group >= 0 ? tree.size[group] : found.each ? found.each.reduce((all, each) => all + each, 0) : found.members.length;
  return make("div", null, heading(group < 0 ? "All operations" : tree.label[group]),
    partsBar(PARTS.map((name) => ({ name, value: of(found.parts[name], name) })), "Cycles", cycles, { whole }),
    facts([["operations", plain(size)], ["cycles", `${plain(whole)}, ${percent(whole, summary.cycles)} of the time`], ["flops", flops(of(found.flops, "flops"))],
      ["moved", bytes(of(found.bytes, "bytes"))], ["each", group >= 0 && tree.repeats(group) ? `${tree.repeats(group)} alike: ${cycles(whole / tree.repeats(group))} on average` : null]]),
    note("Choose an operation for its compute sets, tensors and lines."));
}

/** @param {Context} context @param {Costs} found @param {number} row @param {any} summary */
function ofOperation(context, found, row, summary) {
  const { table, sets } = found, selection = context.state.selection;
  const number = (/** @type {string} */ name) => table.numbers(name)[row], word = (/** @type {string} */ name) => table.words(name).at(row);
  const times = number("times"), compute = [];
  for (let s = found.firstSet[row]; s < found.setStop[row]; s++) compute.push(s);
  const set = (/** @type {string} */ name) => (/** @type {number} */ s) => sets.numbers(name)[s];
  const elsewhere = [["timeline", "Timeline"], ["memory", "Memory"], ["liveness", "Liveness"], ["exchange", "Exchange"]];
  const made = make("div"), source = make("div");
  tensorsOf(context, row).then((node) => made.replaceChildren(node), (error) => made.replaceChildren(note(String(error.message ?? error))));
  sourceOf(context, word("file"), number("line")).then((node) => source.replaceChildren(node), (error) => source.replaceChildren(note(String(error.message ?? error))));
  return make("div", null, heading(word("name")),
    make("p", { class: "note" }, [word("types"), word("layer") ? "in " + word("layer") : ""].filter(Boolean).join(" ")),
    make("p", { class: "links" }, ...elsewhere.map(([page, title]) => make("a", { href: encoded({ ...selection, page, view: "", search: "" }) }, title))),
    partsBar(PARTS.map((name) => ({ name, value: found.parts[name][row] })), "Cycles of " + word("name"), cycles),
    facts([["cycles", `${plain(number("cycles"))}${times > 1 ? ` × ${plain(times)}` : ""}, ${percent(found.cycles[row], summary.cycles)} of the time`],
      ["flops", found.flops[row] ? `${flops(number("flops"))}, ${short(number("flops") / Math.max(1, number("cycles")))} a cycle` : null],
      ["moved", [[number("exchange_bytes"), "exchanged"], [number("link_bytes"), "over links"], [number("streamed_bytes"), "streamed"]].filter(([value]) => value).map(([value, how]) => `${bytes(Number(value))} ${how}`).join(", ")],
      ["vertices", number("vertices") ? `${plain(number("vertices"))}, balance ${percent(number("balance"), 1)}` : null], ["code", number("code_bytes") ? bytes(number("code_bytes")) : null],
      ["where", [number("ipu") < 0 ? "all IPUs" : "IPU " + number("ipu"), "stage " + number("stage"), word("phase"), "in function " + word("function")].filter(Boolean).join(", ")],
      ["line", placeOf(table, row)], ["stream", word("stream")], ["key", make("code", null, word("key"))]]),
    source,
    compute.length ? make("div", null, heading(many(compute.length, "compute set")), plainTable([
      { name: "vertex", value: (s) => sets.words("vertex").at(s) || "copies", words: true }, { name: "vertices", value: set("vertices"), show: short },
      { name: "compute", value: set("compute"), show: short }, { name: "exchange", value: (s) => set("exchange")(s) + set("links")(s), show: short }, { name: "sync", value: set("sync"), show: short },
      { name: "received", value: set("received_bytes"), show: bytes }, { name: "scratch", value: set("scratch_bytes"), show: bytes }], compute.slice(0, MOST), "Compute sets"),
    compute.length > MOST ? note(`and ${compute.length - MOST} more`) : null) : null,
    made);
}

/** The tensors that it reads, who made them, and those that it makes. @param {Context} context @param {number} row */
async function tensorsOf(context, row) {
  const [table, tensors, flow] = await Promise.all([context.table("operations"), context.table("tensors"), context.table("flow")]);
  const [by, producer, consumer, what] = [tensors.numbers("operation"), flow.numbers("producer"), flow.numbers("consumer"), flow.numbers("tensor")];
  /** @type {{tensor: number, maker: number}[]} */
  const read = [], made = [], readers = new Map();
  for (let i = 0; i < by.length; i++) if (by[i] === row) made.push({ tensor: i, maker: row });
  for (let i = 0; i < flow.count; i++) {
    if (consumer[i] === row) read.push({ tensor: what[i], maker: producer[i] });
    if (producer[i] === row) readers.set(what[i], (readers.get(what[i]) ?? 0) + 1);
  }
  const called = (/** @type {{tensor: number}} */ { tensor: t }) => (t < 0 ? "" : tensors.words("source").at(t) || tensors.words("name").at(t));
  const named = (/** @type {{tensor: number, times?: number}} */ row) => called(row) + ((row.times ?? 1) > 1 ? ` ×${row.times}` : "");
  const number = (/** @type {string} */ name) => (/** @type {{tensor: number}} */ { tensor: t }) => (t < 0 ? 0 : tensors.numbers(name)[t]);
  const columns = [{ name: "tensor", value: named, words: true }, { name: "type", value: (/** @type {{tensor: number}} */ { tensor: t }) => (t < 0 ? "" : tensors.words("type").at(t)), words: true }, { name: "on a tile", value: number("tile_bytes"), show: bytes }];
  const from = { name: "from", words: true, value: (/** @type {{maker: number}} */ { maker }) => (maker < 0 ? "the start" : table.words("name").at(maker)),
    node: (/** @type {{maker: number}} */ { maker }) => (maker < 0 ? "the start" : make("a", { href: encoded({ ...context.state.selection, operation: table.words("key").at(maker) }) }, table.words("name").at(maker))) };
  // Of an outlined layer every call reads and makes its own; those that are alike are told once.
  const once = (/** @type {{tensor: number, maker: number}[]} */ rows) => {
    /** @type {Map<string, {tensor: number, maker: number, times: number}>} */
    const found = new Map();
    for (const row of rows) {
      const key = JSON.stringify([...columns.map(({ value }) => value(row)), row.maker, readers.get(row.tensor) ?? 0]), known = found.get(key);
      if (known) known.times++;
      else found.set(key, { ...row, times: 1 });
    }
    return [...found.values()];
  };
  const list = (/** @type {string} */ title, /** @type {any[]} */ rows, /** @type {any[]} */ shown) => (rows.length ? make("div", null, heading(title), plainTable(shown, rows.slice(0, MOST), title), rows.length > MOST ? note(`and ${rows.length - MOST} more`) : null) : null);
  return make("div", null, list("Reads", once(read), [...columns, from]), list("Makes", once(made), [...columns, { name: "readers", value: (/** @type {{tensor: number}} */ { tensor: t }) => readers.get(t) ?? 0 }]));
}

/** The user's lines around one. @param {Context} context @param {string} file @param {number} line */
async function sourceOf(context, file, line) {
  if (!file) return note("");
  const place = context.source.index.sources?.indexOf(file) ?? -1;
  if (place < 0) return note(context.source.index.redacted ? "The report was made without sources." : `The report does not hold ${file}.`);
  const lines = (await context.source.json("source/" + place)).text.split("\n"), first = Math.max(1, line - AROUND);
  return make("div", null, heading(`${file}:${line}`), make("pre", { class: "source", tabindex: 0, role: "region", "aria-label": "Source" },
    ...lines.slice(first - 1, line + AROUND).map((/** @type {string} */ text, /** @type {number} */ i) =>
      make("span", { class: first + i === line ? "here" : null }, make("i", null, String(first + i).padStart(5) + (first + i === line ? " ▸ " : "   ")), text + "\n"))));
}
