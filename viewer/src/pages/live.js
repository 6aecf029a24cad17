// What the run does now: its steps, loss and throughput, wall time beside modelled time, stages, messages, advice.

import "./live.css";
import { Chart, fill, legend } from "../chart.js";
import { card, heading, make, note, say, table } from "../dom.js";
import { bytes, many, percent, plain, rate as perSecond, seconds, short } from "../format.js";
import { Feed } from "../live/feed.js";
import { Lines } from "../lines.js";

/** @typedef {import("../live/feed.js").Program} Program @typedef {import("../live/feed.js").Stage} Stage */

const PERIOD = 100; // milliseconds between two drawings, at least
const STAGE = 18; // pixels
/** @type {(keyof Stage & ("compute" | "exchange" | "links" | "sync" | "host"))[]} */
const KINDS = ["compute", "exchange", "links", "sync", "host"];

/** One feed for as long as this page of the browser lives. @type {Feed | null} */
let feed = null;

/** @type {Record<import("../live/feed.js").Status, string>} */
const WORDS = { waiting: "Waiting for the run to begin", running: "Running", ended: "Ended", failed: "Failed", interrupted: "Interrupted", gone: "Its process has gone without a word" };

const MORE = 2; // times the time of the program that is shown has another one that is shown instead

/** The program that was chosen last, also before another page was looked at. */
let picked = -1;

/** The chosen program, or the one with most of the run's time so far: the one that is shown stays until another has much
 * more, so that two alike do not take turns. Before any has run, it is the one that compiled last.
 * @param {Feed} feed @param {string} view @param {Program | null} shown */
function chosen(feed, view, shown) {
  if (view !== "") picked = Number(view);
  const programs = [...feed.programs.values()], found = feed.programs.get(picked);
  if (found || !programs.length) return found ?? null;
  const most = programs.reduce((best, p) => (p.wall > best.wall || !best.wall ? p : best));
  return shown && programs.includes(shown) && shown.wall * MORE > most.wall ? shown : most;
}

/** @param {Program} p */
function cards(p) {
  const f = p.figures, mean = p.runs ? p.wall / p.runs : 0, rate = p.rate();
  return [
    card("Runs", plain(p.runs), `${short(p.samples)} samples, ${plain(f.samples)} a run`),
    card("Throughput here", rate ? perSecond(rate) : "–", "samples a second, measured"),
    card("Modelled throughput", perSecond(f.samples / f.seconds), `on ${f.system}`),
    card("A run here", mean ? seconds(mean) : "–", "wall time, measured" + (p.runs > 1 ? `; ${seconds(p.gap / (p.runs - 1))} between two` : "")),
    card("A run modelled", seconds(f.seconds), mean ? `${short(mean / f.seconds)} × faster than here` : ""),
    f.train ? card("Loss", p.loss === null ? "–" : p.loss.toPrecision(4), p.bad ? `newest number; none in ${many(p.bad, "run")}` : "newest", p.bad ? "bad" : undefined) : null,
    card("Host", `${bytes(f.host_in)} in, ${bytes(f.host_out)} out`, `a run; ${bytes((f.host_in + f.host_out) / f.seconds)}/s modelled, ${bytes(((f.host_in + f.host_out) * rate) / f.samples)}/s here`),
    card("Tile memory", f.memory.fits ? percent(f.memory.max, f.memory.limit) : bytes(f.memory.max - f.memory.limit) + " over", `fullest tile ${bytes(f.memory.max)} of ${bytes(f.memory.limit)}`, f.memory.fits ? undefined : "bad"),
  ].filter((node) => node !== null);
}

/** What each IPU of a replica does in the modelled time. @param {Program} p */
function stages(p) {
  const rows = p.figures.stages, name = (/** @type {Stage} */ s) => `IPU ${s.ipu}` + (rows.length > 1 ? `, stage ${s.stages.join(" and ")}` : "");
  const waits = (/** @type {Stage} */ s) => Math.max(0, 1 - KINDS.reduce((sum, kind) => sum + s[kind], 0));
  const said = (/** @type {Stage} */ s) => `${name(s)}: ` + [...KINDS.filter((kind) => s[kind] > 0).map((kind) => `${kind} ${percent(s[kind], 1)}`), `waits ${percent(waits(s), 1)}`].join(", ");
  const left = rows.length > 1 ? 110 : 46;
  const chart = new Chart({
    height: Math.max(1, rows.length) * STAGE, label: "Share of the modelled time that each IPU of a replica spends: " + rows.slice(0, 8).map(said).join("; "),
    draw(g, width) {
      rows.forEach((s, i) => {
        let x = left;
        g.fillStyle = fill(g, "ink", 0);
        g.fillText(name(s), 0, i * STAGE + 13, left - 4);
        g.fillStyle = fill(g, "idle", 0);
        g.fillRect(left, i * STAGE + 1, width - left, STAGE - 3);
        KINDS.forEach((kind, hatch) => {
          const wide = s[kind] * (width - left);
          g.fillStyle = fill(g, kind, hatch);
          g.fillRect(x, i * STAGE + 1, wide, STAGE - 3);
          x += wide;
        });
      });
    },
    step: STAGE,
    read: (_, y) => { const s = rows[Math.floor(y / STAGE)]; return s ? said(s) : ""; },
    rows: () => table([{ name: "IPU", value: (s) => s.ipu }, { name: "stages", value: (s) => s.stages.join(", ") }, ...[...KINDS, "waits"].map((kind) => ({
      name: kind, value: (/** @type {any} */ s) => (kind === "waits" ? waits(s) : s[kind]), show: (/** @type {number} */ value) => percent(value, 1) }))], rows, "Share of the modelled time by IPU"),
  });
  return make("div", null, chart.node, legend([...KINDS.map((kind, i) => /** @type {[string, string, number]} */ ([kind, kind, i])), ["waits", "idle", 0]]));
}

/** The lines of a program. @param {Program} p */
function charts(p) {
  const time = (/** @type {number} */ v) => seconds(v), tick = (/** @type {number} */ v) => seconds(v).replace(/\.?0+ /, " "), rate = (/** @type {number} */ v) => perSecond(v), loss = (/** @type {number} */ v) => v.toPrecision(4);
  const made = [
    new Lines({ height: 220, label: "Seconds of a run: wall time and pauses measured here, and modelled", log: true, axis: tick,
      series: [{ name: "wall time here", hue: "compute", show: time }, { name: "pause before it", hue: "bubble", dash: [2, 3], show: time }, { name: "modelled", hue: "good", dash: [8, 4], width: 2, show: time }] }),
    new Lines({ height: 220, label: "Samples a second, measured here", axis: rate, series: [{ name: "samples a second here", hue: "host", show: rate }] }),
  ];
  const shown = [heading("Time of a run"), heading("Throughput here")];
  if (p.figures.train) {
    made.unshift(new Lines({ height: 220, label: "Loss by run: mean, least and greatest of the runs of each moment", axis: (v) => v.toPrecision(3),
      series: [{ name: "loss", hue: "compute", width: 2, show: loss }, { name: "least", hue: "overhead", dash: [2, 3], show: loss }, { name: "greatest", hue: "links", dash: [6, 3], show: loss }] }));
    shown.unshift(heading("Loss"));
  }
  const nothing = (/** @type {number} */ x) => (Number.isFinite(x) && x > 0 ? x : null);
  return {
    nodes: made.map((lines, i) => make("section", null, shown[i], lines.node)),
    close: () => made.forEach((lines) => lines.close()),
    draw() {
      const points = p.points, runs = points.map((q) => q.first + q.count), columns = [
        [runs, points.map((q) => nothing(q.wall / q.count)), points.map((q) => nothing(q.gap / q.count)), points.map(() => p.figures.seconds)],
        [runs, points.map((q) => nothing(q.samples / (q.wall + q.gap)))]];
      if (p.figures.train) columns.unshift([runs, points.map((q) => (q.losses ? q.sum / q.losses : null)), points.map((q) => (q.losses ? q.least : null)), points.map((q) => (q.losses ? q.most : null))]);
      made.forEach((lines, i) => lines.set(/** @type {any} */ (columns[i])));
    },
  };
}

/** @type {import("../main.js").Page} */
export const live = {
  name: "live",
  title: "Live",
  missing: (context) => (context.source.index.live ? "" : "This is a report, not a run that goes on: `abele run --live` and `abele view --live FILE` show one."),
  async show(context) {
    const { source, state } = context;
    if (!source.events) throw new Error("A saved page follows no run.");
    const now = feed ??= new Feed(source.events);
    const status = make("div", { class: "status" }), select = /** @type {HTMLSelectElement} */ (make("select", { "aria-label": "Program of the run", onchange: () => state.set({ view: select.value }) }));
    const figures = make("div", { class: "cards" }), lines = make("div", null), bars = make("div", null), advice = make("ul", { class: "advice" });
    const log = make("ol", { class: "log", tabindex: 0, "aria-label": "Messages of the run" });
    /** @type {ReturnType<typeof charts> | null} */
    let drawn = null;
    /** @type {Program | null} */
    let program = null;
    let told = "", advised = "", logged = -1, begun = 0;

    const header = () => {
      const link = now.reported ? make("a", { href: "#verdict", onclick: started }, "Open its report") : null;
      const more = now.status === "running" ? `for ${seconds(now.t)}` : now.status === "waiting" ? "" : `after ${seconds(now.t)}`;
      status.className = "status " + now.status;
      const line = WORDS[now.status] + (now.error ? `: ${now.error}` : "");
      status.replaceChildren(make("b", null, line), more, now.connected ? "" : make("span", { class: "bad" }, "No answer from the viewer's server: trying again. The run is not concerned."),
        make("code", null, now.command), ...(link ? [link] : now.status === "ended" ? [make("span", { class: "note" }, "Its report, if it writes one, comes next.")] : []));
      const said = `${line}. ${now.connected ? "" : "The connection is lost."} ${link ? "Its report is there." : ""}`;
      if (said !== told && told) say(said);
      told = said;
    };
    const messages = () => {
      if (now.said === logged) return;
      const end = log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
      if (now.said < logged) log.replaceChildren();
      for (const row of now.messages.slice(logged < 0 ? 0 : Math.max(0, now.messages.length - (now.said - logged)))) {
        log.append(make("li", { class: row.level }, make("time", null, seconds(row.t)), (row.level === "info" ? "" : row.level + ": ") + row.text));
      }
      while (log.childElementCount > now.messages.length) log.firstChild?.remove();
      logged = now.said;
      if (end) log.scrollTop = log.scrollHeight;
    };
    const counsel = (/** @type {Program} */ p) => {
      const key = JSON.stringify(p.advice);
      if (key === advised) return;
      advised = key;
      advice.replaceChildren(...p.advice.map((row) => make("li", null, row.text, row.gain ? ` ${row.gain.toFixed(2)} × the throughput (estimate).` : "", make("small", null, row.why))));
      if (!p.advice.length) advice.append(make("li", { class: "note" }, "Nothing stands out in the modelled time of this program."));
    };
    const draw = () => {
      begun = performance.now();
      header();
      messages();
      const next = chosen(now, state.selection.view, program);
      if (select.options.length !== now.programs.size) select.replaceChildren(...[...now.programs.values()].map((p) => make("option", { value: p.figures.program }, `${p.figures.name} on ${p.figures.system}`)));
      select.hidden = now.programs.size < 2;
      if (next !== program) {
        drawn?.close();
        program = next;
        drawn = program && charts(program);
        lines.replaceChildren(...(drawn?.nodes ?? []));
        bars.replaceChildren(program ? stages(program) : "");
        advised = "";
      }
      if (!program) { figures.replaceChildren(note("No program has been compiled yet.")); return; }
      select.value = String(program.figures.program);
      figures.replaceChildren(...cards(program));
      counsel(program);
      drawn?.draw();
    };
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let waiting;
    const changed = () => {
      // Until it has been drawn, what changes meanwhile is of the same drawing.
      waiting ??= setTimeout(() => requestAnimationFrame(() => { waiting = undefined; draw(); }), Math.max(0, PERIOD - (performance.now() - begun)));
    };
    now.listeners.add(changed);
    const node = make("section", null, make("div", { class: "tools" }, heading("The run"), select), status, figures, make("div", { class: "halves" }, lines,
      make("div", null, heading("Stages"), note("Shares of the modelled time."), bars, heading("Advice"), note("Estimates from the modelled time; nothing was compiled for them. The report has advice that was."), advice, heading("Messages"), log)));
    requestAnimationFrame(draw);
    return { node, update: (to, before) => { if (to.view !== before.view) changed(); return true; }, close: () => { clearTimeout(waiting); now.listeners.delete(changed); drawn?.close(); } };
  },
};

/** To the report: what the server has to show is another now than when this page was opened. @param {Event} e */
function started(e) {
  e.preventDefault();
  location.hash = "#verdict";
  location.reload();
}
