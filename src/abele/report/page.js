"use strict";
// Draws the profiles that are in the page. It sorts, scales and bins for the screen; every number comes from the data.
const SCHEMA = Number("/*schema*/");
const KINDS = ["compute", "exchange", "links", "sync", "host", "bubble", "overhead"];
const LENGTHS = ["sync", "exchange", "compute", "host"]; // of a moment, in the order in which they run
const element = (id) => document.getElementById(id);
const main = element("main"), tip = element("tip");
const state = { program: 0, page: "Verdict", ipu: null }; // what the address holds: #program/page/ipu
let profiles = [];

// Undoes abele/report/pack.py.
function unpack(v) {
  if (Array.isArray(v)) return v.map(unpack);
  if (v === null || typeof v !== "object") return v;
  if ("$runs" in v) {
    const all = [];
    for (let i = 0; i < v.$runs.length; i += 2) for (let n = v.$runs[i + 1]; n > 0; n--) all.push(v.$runs[i]);
    return all;
  }
  if ("$words" in v) return unpack(v.$at).map((i) => v.$words[i]);
  const fields = Object.entries("$rows" in v ? v.columns : v).map(([key, x]) => [key, unpack(x)]);
  if (!("$rows" in v)) return Object.fromEntries(fields);
  return Array.from({ length: v.$rows }, (_, i) => Object.fromEntries(fields.map(([key, column]) => [key, column[i]])));
}

// Numbers and places as text.
const plain = (x) => (x === null || x === undefined ? "–" : Math.abs(x) < 100 && x % 1 ? x.toPrecision(3) : Math.round(x).toLocaleString("en"));
const percent = (part, whole) => (whole ? (100 * part / whole).toFixed(1) + " %" : "–");
const scaled = (x, digits, least, units) => { // the first unit that x is at least so many of
  const [unit, f] = units.find(([, f]) => Math.abs(x) >= f * least) || units.at(-1);
  const fixed = f === 1 && unit !== "s" ? 0 : digits;
  return (x / f).toLocaleString("en", { minimumFractionDigits: fixed, maximumFractionDigits: fixed }) + " " + unit;
};
// Bytes from four of a unit on, so that a tile's bytes and its limit are in the same one.
const bytes = (x) => scaled(x, 1, 4, [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]]);
const time = (x) => scaled(x, 2, 1, [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]]);
const flop = (x) => scaled(x, 2, 1, [["TFLOP", 1e12], ["GFLOP", 1e9], ["MFLOP", 1e6], ["FLOP", 1]]);
const many = (n, word) => plain(n) + " " + word + (n === 1 ? "" : "s");
const where = (o) => [o.file ? o.file + ":" + o.line : "", o.module ? "in " + o.module : ""].filter(Boolean).join(" ");

// Elements. Names from a model go in as text, never as markup.
const make = (tag, attributes, ...children) => {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== null) node.setAttribute(key, value);
  }
  node.append(...children.filter((c) => c !== undefined && c !== null));
  return node;
};
const heading = (text) => make("h2", null, text);
const note = (text) => make("p", { class: "note" }, text);
const card = (name, value, more, kind) => make("div", { class: "card" }, make("small", null, name), make("b", { class: kind }, value), more ? make("small", null, more) : null);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name.replace(" ", "-")).trim();
const legend = (entries) => make("p", { class: "key" }, ...entries.map(([name, hue]) => {
  const box = make("i"); box.style.background = colour(hue); return make("span", null, box, name);
}));
// A table that sorts by a click on a heading. Columns: name, value(row), show(value, row), words: text and not numbers.
function table(columns, rows, by, label) {
  let down = true, most = 100;
  const body = make("tbody"), head = make("tr"), more = make("button", { onclick: () => { most *= 10; fill(); } });
  const fill = () => {
    const sorted = by === undefined ? rows : [...rows].sort((a, b) => {
      const x = columns[by].value(a), y = columns[by].value(b);
      return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
    });
    const cell = (c, r) => make("td", { class: c.words ? "words" : null }, c.show ? c.show(c.value(r), r) : String(c.value(r)));
    body.replaceChildren(...sorted.slice(0, most).map((r) => make("tr", null, ...columns.map((c) => cell(c, r)))));
    [...head.children].forEach((h, i) => (i === by ? h.setAttribute("aria-sort", down ? "descending" : "ascending") : h.removeAttribute("aria-sort")));
    more.hidden = rows.length <= most; more.textContent = "Show more of the " + plain(rows.length) + " rows";
  };
  columns.forEach((c, i) => head.append(make("th", { scope: "col", class: c.words ? "words" : null },
    make("button", { onclick: () => { down = by === i ? !down : !c.words; by = i; fill(); } }, c.name))));
  fill();
  return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, make("table", null, make("thead", null, head), body), more);
}
const asTable = (build) => { // built when it is opened
  const box = make("details", null, make("summary", null, "As a table"));
  box.addEventListener("toggle", () => { if (box.open) box.append(build()); else box.lastChild.remove(); });
  return box;
};
const numbers = (name, value, show) => ({ name, value, show: show || plain });
const words = (name, value) => ({ name, value, words: true });

// A canvas. `read(x, width, y)` says what is there: to the mouse in a box beside it, to the keyboard also by voice.
function canvas(height, label, draw, read, keys) {
  const node = make("canvas", { role: "img", "aria-label": label, tabindex: read ? 0 : null });
  let probe = null;
  node.style.height = height + "px";
  node.repaint = () => {
    const scale = devicePixelRatio || 1, w = node.clientWidth;
    if (!w) return;
    node.width = w * scale; node.height = height * scale;
    const g = node.getContext("2d");
    g.scale(scale, scale); g.font = "11px system-ui, sans-serif"; draw(g, w, height);
    if (probe !== null) { g.fillStyle = colour("ink"); g.fillRect(probe, 0, 1, height); }
  };
  new ResizeObserver(node.repaint).observe(node);
  if (!read) return node;
  const tell = (x, y, left, top) => {
    const text = read(x, node.clientWidth, y);
    tip.hidden = !text; tip.textContent = text || "";
    tip.style.left = Math.max(4, Math.min(left + 12, innerWidth - tip.offsetWidth - 8)) + "px"; tip.style.top = top + 14 + "px";
    return text;
  };
  node.addEventListener("pointermove", (e) => tell(e.offsetX, e.offsetY, e.clientX, e.clientY));
  node.addEventListener("pointerleave", () => { tip.hidden = true; });
  node.addEventListener("blur", () => { tip.hidden = true; probe = null; node.repaint(); });
  node.addEventListener("keydown", (e) => {
    const w = node.clientWidth, step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -w / 20, PageDown: w / 20, Home: -w, End: w }[e.key];
    if (step === undefined && !(keys && keys(e.key))) return;
    e.preventDefault();
    probe = Math.max(0, Math.min(w - 1, (probe === null ? w / 2 : probe) + (step || 0)));
    node.repaint();
    const box = node.getBoundingClientRect();
    element("said").textContent = tell(probe, -1, box.left + probe, box.top + 30);
  });
  return node;
}
function limitLine(g, w, y, text) { // with a rim, to be seen over any hue
  for (const [hue, width, dash] of [["paper", 4, []], ["bad", 2, [6, 4]]]) {
    g.strokeStyle = colour(hue); g.lineWidth = width; g.setLineDash(dash);
    g.beginPath(); g.moveTo(0, y); g.lineTo(w, y); g.stroke();
  }
  g.setLineDash([]); tag(g, text, 4, y - 16, "bad");
}
function tag(g, text, x, y, hue) {
  g.fillStyle = colour("paper"); g.fillRect(x - 2, y, g.measureText(text).width + 6, 13);
  g.fillStyle = colour(hue); g.fillText(text, x, y + 10);
}
const range = (x, w, n) => { const a = Math.floor(x * n / w); return [a, Math.max(a + 1, Math.floor((x + 1) * n / w))]; };
const overlap = (p, rows) => (rows.reduce((sum, r) => sum + r.cycles, 0) > 1.01 * p.cycles
  ? note("Steps of several IPUs overlap in a pipeline: the shares of the time add up to more than 100 %.") : null);

const pages = {
  Verdict(p) {
    const m = p.tile_memory, used = KINDS.filter((k) => p.cycles_by[k]);
    const bar = canvas(34, "Cycles by kind: " + used.map((k) => k + " " + percent(p.cycles_by[k], p.cycles)).join(", "), (g, w, h) => {
      let x = 0;
      for (const k of used) { const part = w * p.cycles_by[k] / p.cycles; g.fillStyle = colour(k); g.fillRect(x, 0, part, h); x += part; }
    });
    const figure = (show) => (x, l) => (l.error ? "–" : show(x));
    const parts = Object.entries(p.energy.parts).filter(([, joules]) => joules);
    return [
      heading([p.name, p.mode, "on", p.system].filter(Boolean).join(" ")),
      make("div", { class: "cards" },
        card("Fits?", m.fits ? "Yes" : "No, " + bytes(m.gap) + " over", "fullest tile " + bytes(m.max) + " of " + bytes(m.limit), m.fits ? "good" : "bad"),
        card("Modelled time", time(p.seconds), plain(p.cycles) + " cycles for " + many(p.samples, "sample")),
        card("Throughput", plain(p.throughput) + " /s", "samples a second"),
        card("Arithmetic", percent(p.peak_fraction, 1), "of peak; " + flop(p.flops)),
        card("Energy", p.energy_joules.toPrecision(3) + " J", plain(p.energy_joules / p.seconds) + " W × time"),
        card("IPUs", String(p.ipus), many(p.replicas, "replica") + " of " + p.ipus_per_replica + ", " + plain(p.tiles) + " tiles each"),
        p.wall_seconds ? card("Measured here", time(p.wall_seconds), "wall time of one run on this computer") : null),
      ...(p.explanation ? [heading("Why it does not fit"), make("p", { class: "why" }, p.explanation.text)] : []),
      ...(p.advice && p.advice.length ? [heading((m.fits ? "What would make it faster" : "What would help") + " (each was compiled)"), table([
        words("change", (l) => l.text), numbers("fullest tile", (l) => l.bytes, figure(bytes)), numbers("of the limit", (l) => l.bytes, figure((x) => percent(x, m.limit))),
        words("fits", (l) => l.error || (l.fits ? "yes" : "no")), numbers("samples a second", (l) => l.throughput, figure(plain)),
        words("command", (l) => l.command)], p.advice, undefined, "Advice")] : []),
      heading("Where the time goes"), bar, legend(used.map((k) => [k + " " + percent(p.cycles_by[k], p.cycles), k])),
      table([words("operation", (r) => r.key), numbers("times", (r) => r.times), numbers("cycles", (r) => r.cycles),
        numbers("of the time", (r) => r.cycles, (x) => percent(x, p.cycles))], p.by_operation.filter((r) => r.cycles).slice(0, 8), 2, "Operations"), overlap(p, p.by_operation),
      ...(profiles.length > 1 ? [heading("All programs of this report"), table([
        words("program", (q) => q.name), words("machine", (q) => q.system), numbers("time", (q) => q.seconds, time), numbers("samples a second", (q) => q.throughput),
        numbers("energy", (q) => q.energy_joules, (x) => x.toPrecision(3) + " J"), numbers("fullest tile", (q) => q.tile_memory.max, bytes),
        words("fits", (q) => (q.tile_memory.fits ? "yes" : "no"))], profiles, undefined, "Programs")] : []),
      heading("Where the energy goes"), table([words("part", (e) => e[0]), numbers("joules", (e) => e[1], (x) => x.toPrecision(3)),
        numbers("share", (e) => e[1], (x) => percent(x, p.energy_joules))], parts, 1, "Energy"), note(p.energy.basis),
      ...(p.passes && p.passes.length ? [heading("Compiler passes"), table([words("pass", (s) => s.name), numbers("operations before", (s) => s.before),
        numbers("after", (s) => s.after), numbers("time", (s) => s.seconds, time)], p.passes, undefined, "Passes"),
      note("Compiled " + (p.cached ? "before, taken from the cache." : "in " + time(p.compile_seconds) + " of CPU."))] : []),
      heading("Notes"), ...p.notes.map(note)];
  },
  Memory(p) {
    const m = p.tile_memory, ipu = state.ipu !== null && m.totals[state.ipu] ? state.ipu : m.fullest_ipu;
    const tiles = m.totals[ipu], most = Math.max(...tiles), names = Object.keys(m.always);
    let top = Math.max(m.limit, most) * 1.08;
    const at = (t) => { const by = names.map((k) => m.always[k][ipu][t]); return [...by, tiles[t] - by.reduce((a, b) => a + b, 0)]; };
    const kinds = [...names.map((k) => [k, k]), ["for a while: values, temporaries, exchange buffers", "passing"]];
    const chart = canvas(260, "Bytes of every tile of IPU " + ipu + " at its own peak, by kind, against the limit of " + bytes(m.limit), (g, w, h) => {
      const hues = kinds.map((k) => colour(k[1]));
      for (let x = 0; x < w; x++) { // of the tiles that fall on a pixel, the fullest
        const [a, b] = range(x, w, tiles.length);
        let t = a, y = h; for (let i = a; i < b; i++) if (tiles[i] > tiles[t]) t = i;
        at(t).forEach((part, k) => { const tall = h * part / top; y -= tall; g.fillStyle = hues[k]; g.fillRect(x, y, 1, tall + 0.5); });
      }
      limitLine(g, w, h - h * m.limit / top, "limit " + bytes(m.limit));
    }, (x, w) => {
      const t = Math.min(tiles.length - 1, Math.floor(x * tiles.length / w));
      return "tile " + t + ": " + bytes(tiles[t]) + at(t).map((v, k) => (v ? "\n  " + kinds[k][0] + " " + bytes(v) : "")).join("");
    });
    const each = m.totals.map((row, i) => ({ ipu: i, max: Math.max(...row), mean: row.reduce((a, b) => a + b, 0) / row.length, over: row.filter((v) => v > m.limit).length }));
    const choice = make("select", { "aria-label": "IPU", onchange: (e) => go({ ipu: e.target.value }) }, ...each.map((e) => make("option", { value: e.ipu }, "IPU " + e.ipu)));
    choice.value = ipu;
    const closer = make("button", { onclick: () => { top = top > most * 1.1 ? most * 1.08 : Math.max(m.limit, most) * 1.08; chart.repaint(); } }, "Scale to the fullest tile, or to the limit");
    return [
      heading("Tiles of IPU " + ipu + ", each at its own peak"), each.length > 1 ? choice : null, chart, most < m.limit ? closer : null, legend(kinds.filter((_, k) => tiles.some((_, t) => at(t)[k]))),
      asTable(() => table([numbers("tile", (t) => t, String), numbers("total", (t) => tiles[t], bytes), ...kinds.map((kind, k) => numbers(kind[0].split(":")[0], (t) => at(t)[k], bytes))], tiles.map((_, t) => t), 1, "Tiles")),
      ...(each.length > 1 ? [heading("Each IPU"), table([numbers("IPU", (e) => e.ipu, String), numbers("fullest tile", (e) => e.max, bytes),
        numbers("mean", (e) => e.mean, bytes), numbers("tiles over the limit", (e) => e.over)], each, undefined, "IPUs")] : []),
      heading("On the fullest tile (" + m.fullest_tile + " of IPU " + m.fullest_ipu + ") at its peak: " + bytes(m.max)),
      table([words("kind", (e) => e[0]), numbers("bytes", (e) => e[1], bytes), numbers("share", (e) => e[1], (x) => percent(x, m.max))], Object.entries(m.categories).filter((e) => e[1]), 1, "Kinds of memory"),
      heading("The largest tensors there at that moment"),
      table([words("tensor", (t) => t.source || t.operation || t.tensor), words("type", (t) => t.type), words("kind", (t) => t.kind), numbers("copies", (t) => t.copies),
        numbers("on this tile", (t) => t.bytes, bytes), numbers("on all tiles", (t) => t.total_bytes, bytes), words("from", where)], m.by_tensor, 4, "Tensors")];
  },
  Liveness(p) {
    const m = p.tile_memory, high = m.curve.max, n = high.length, top = Math.max(m.limit, m.max) * 1.08;
    const at = (i) => { const r = p.timeline.row[i]; return r >= 0 ? p.steps[r] : null; };
    const title = (i) => { const s = at(i); return "moment " + i + (s ? ": " + s.name + " " + s.types + "\n" + where(s.origin) : ""); };
    const moment = (x, w) => Math.max(0, Math.min(n - 1, Math.floor(x * n / w)));
    const chart = canvas(300, "Bytes on the fullest tile of IPU " + m.fullest_ipu + " over the program", (g, w, h) => {
      for (const [curve, hue] of [[high, "compute"], [m.curve.mean, "mean"]]) {
        g.fillStyle = colour(hue);
        for (let x = 0; x < w; x++) {
          const [a, b] = range(x, w, n);
          let most = 0; for (let i = a; i < b; i++) most = Math.max(most, curve[i]);
          g.fillRect(x, h - h * most / top, 1, h * most / top);
        }
      }
      limitLine(g, w, h - h * m.limit / top, "limit " + bytes(m.limit));
      const x = w * (m.peak_step + 0.5) / n, y = h - h * m.max / top, text = "peak " + bytes(m.max);
      g.fillStyle = colour("ink"); g.beginPath(); g.moveTo(x, y); g.lineTo(x - 5, y - 9); g.lineTo(x + 5, y - 9); g.fill();
      tag(g, text, x + 8 + g.measureText(text).width > w ? x - 12 - g.measureText(text).width : x + 8, Math.max(0, y - 13), "ink");
    }, (x, w) => { const i = moment(x, w); return title(i) + "\nfullest tile " + bytes(high[i]) + ", mean " + bytes(m.curve.mean[i]); });
    const groups = new Map(); // tensors alike, with the same life, share a row
    for (const t of m.by_tensor) {
      const text = (t.source || t.operation || t.tensor) + " " + t.type, key = [text, t.first, t.last, t.bytes].join();
      if (t.first > 0 || t.last < n - 1) groups.set(key, { ...t, text, alike: (groups.has(key) ? groups.get(key).alike : 0) + 1 });
    }
    const rows = [...groups.values()].slice(0, 30);
    const lives = canvas(24 * rows.length + 2, "When the largest tensors of the peak are live: a row for each", (g, w) => {
      g.fillStyle = colour("ink"); g.fillRect(w * (m.peak_step + 0.5) / n, 0, 1, 24 * rows.length);
      rows.forEach((t, i) => {
        const x = w * t.first / n, text = (t.alike > 1 ? t.alike + " × " : "") + t.text + ", " + bytes(t.bytes);
        g.fillStyle = colour("mean"); g.fillRect(x, 24 * i + 13, Math.max(2, w * (t.last + 1 - t.first) / n), 8);
        tag(g, text, Math.max(2, Math.min(x, w - g.measureText(text).width - 4)), 24 * i, "ink");
      });
    }, (x, w, y) => {
      const t = rows[Math.floor(y / 24)];
      return (t ? t.text + ", " + where(t) + "\nlive from moment " + t.first + " to " + t.last + "\n" : "") + title(moment(x, w));
    });
    return [heading("Memory over the program, on IPU " + m.fullest_ipu), chart, legend([["fullest tile", "compute"], ["mean over tiles", "mean"]]),
      note("From left to right the program's moments, each as wide as any other: a step is one; the body of a loop is there once."),
      asTable(() => table([numbers("moment", (i) => i, String), words("step", (i) => (at(i) ? at(i).name : "")), numbers("fullest tile", (i) => high[i], bytes),
        numbers("mean", (i) => m.curve.mean[i], bytes), words("from", (i) => (at(i) ? where(at(i).origin) : ""))], high.map((_, i) => i), 2, "Moments")),
      ...(rows.length ? [heading("Live at the peak for a while: the largest tensors"), lives] : [])];
  },
  Operations(p) {
    const columns = (name, rows) => [
      words(name, (r) => r.key || "(no " + name + ")"), numbers("steps", (r) => r.steps), numbers("times", (r) => r.times), numbers("cycles", (r) => r.cycles),
      numbers("of the time", (r) => r.cycles, (x) => percent(x, p.cycles)),
      ...KINDS.filter((k) => rows.some((r) => r.cycles_by[k])).map((k) => numbers(k, (r) => r.cycles_by[k])), numbers("arithmetic", (r) => r.flops, flop)];
    const find = make("input", { type: "search", placeholder: "Find a step …", "aria-label": "Find a step by name, type, line or module" }), holder = make("div");
    const steps = () => {
      const word = find.value.toLowerCase();
      const rows = p.steps.filter((s) => !word || (s.name + " " + where(s.origin) + " " + s.types).toLowerCase().includes(word));
      holder.replaceChildren(note(many(rows.length, "step")), table([
        words("step", (s) => s.name + " " + s.types), words("from", (s) => where(s.origin)), words("phase", (s) => s.origin.phase),
        numbers("IPU", (s) => s.origin.ipu, String), numbers("times", (s) => s.times), numbers("cycles each", (s) => s.cycles),
        numbers("cycles in all", (s) => s.cycles * s.times), numbers("vertices", (s) => s.vertices), numbers("exchanged", (s) => s.bytes, bytes),
        numbers("balance", (s) => s.balance, (x, s) => (s.vertices ? percent(x, 1) : "–"))], rows, 6, "Steps"));
    };
    find.addEventListener("input", steps); steps();
    const groups = [["operation", p.by_operation], ["line", p.by_line], ["module", p.by_module]];
    return [overlap(p, p.by_operation), ...groups.flatMap(([name, rows]) => [heading("By " + (name === "line" ? "source line" : name)), table(columns(name, rows), rows, 3, "By " + name)]),
      heading("Steps"), find, holder, note("Balance: the mean time of the tiles' vertices as a share of the slowest tile's.")];
  },
  Timeline(p) {
    const t = p.timeline, n = t.row.length, lanes = p.ipus_per_replica, tall = Math.round(Math.max(8, Math.min(36, 600 / lanes))), lane = tall + (lanes > 1 ? 16 : 6), under = lanes > 1 ? 46 : 36;
    const end = t.start.map((x, i) => x + LENGTHS.reduce((sum, k) => sum + t[k][i], 0));
    let from = 0, to = p.cycles;
    const last = (c) => { let a = 0, b = n; while (b - a > 1) { const mid = (a + b) >> 1; if (t.start[mid] <= c) a = mid; else b = mid; } return a; }; // that starts by c
    const height = Math.ceil(under + lane * lanes);
    const chart = canvas(height, "Sync, exchange, compute and host over time, a lane for each IPU", (g, w) => {
      const scale = w / (to - from), px = (c) => (c - from) * scale;
      // How much of each pixel each kind takes: what is shorter than a pixel still counts.
      const share = LENGTHS.map(() => new Float32Array(lanes * w)), busy = new Set();
      for (let i = last(from); i < n && t.start[i] < to; i++) {
        let x = px(t.start[i]); const row = Math.max(0, t.ipu[i]) * w; busy.add(row / w);
        LENGTHS.forEach((k, kind) => {
          const b = Math.min(w, x + t[k][i] * scale);
          for (let at = Math.max(0, x); at < b;) { const next = Math.min(b, Math.floor(at) + 1); share[kind][row + Math.floor(at)] += next - at; at = next; }
          x += t[k][i] * scale;
        });
      }
      // From below up, in whole pixels, 3 at least; pixels alike are one rectangle, lanes without work are passed over.
      const base = new Uint8Array(lanes * w), exact = new Float32Array(lanes * w);
      LENGTHS.forEach((k, kind) => {
        g.fillStyle = colour(k);
        for (const l of busy) {
          const after = base.slice(l * w, l * w + w);
          for (let x = 0; x < w; x++) {
            const i = l * w + x, all = share[0][i] + share[1][i] + share[2][i] + share[3][i];
            if (share[kind][i]) after[x] = Math.round(Math.min(1, exact[i] += share[kind][i] * Math.max(1, 3 / (tall * all))) * tall);
          }
          for (let x = 0, run; x < w; x += run) {
            const low = base[l * w + x], high = after[x];
            for (run = 1; x + run < w && base[l * w + x + run] === low && after[x + run] === high;) run++;
            if (high > low) g.fillRect(x, under + lane * l + tall - high, run, high - low);
          }
          base.set(after, l * w);
        }
      });
      g.strokeStyle = g.fillStyle = colour("soft"); g.lineWidth = 1;
      if (lanes > 1) for (let l = 0; l < lanes; l++) g.fillText("IPU " + l, 2, under + lane * l - 3);
      let free = 0; // labels that would lie on each other are left out
      for (const f of t.folds) {
        const done = Math.max(end[f.exit - 1], f.start), a = Math.max(0, px(done)), b = Math.min(w, px(f.start + f.length));
        if (b > a + 2) { // the turns that are not drawn
          g.save(); g.beginPath(); g.rect(a, under, b - a, height - under); g.clip(); g.beginPath();
          for (let x = a - height; x < b; x += 9) { g.moveTo(x, height); g.lineTo(x + height, 0); }
          g.globalAlpha = 0.4; g.stroke(); g.restore();
        }
        const x = Math.max(2, px(f.start)), text = f.function + ": the first of " + f.count + " turns; hatched: the rest";
        if (px(f.start + f.length) > 0 && x < w && x >= free) { g.fillStyle = colour("ink"); g.fillText(text, x, 28); free = x + g.measureText(text).width + 10; }
      }
      const raw = (to - from) / Math.max(2, w / 110), ten = 10 ** Math.floor(Math.log10(raw)), step = ten * [1, 2, 5, 10].find((f) => f * ten >= raw);
      g.fillStyle = colour("soft");
      for (let c = Math.ceil(from / step) * step; px(c) + g.measureText(plain(c)).width < w; c += step) { g.fillRect(px(c), 0, 1, 12); g.fillText(plain(c), px(c) + 3, 11); }
    }, (x, w) => {
      const c = from + x * (to - from) / w, i = last(c), s = t.row[i] >= 0 ? p.steps[t.row[i]] : null, at = "cycle " + plain(c) + ", " + time(c / p.clock_hz);
      if (!s || c >= end[i]) return at;
      return at + "\n" + s.name + " " + s.types + (lanes > 1 ? "\nIPU " + Math.max(0, t.ipu[i]) : "") + "\n" + where(s.origin) + "\n" + LENGTHS.map((k) => k + " " + plain(t[k][i])).join(", ");
    }, (key) => {
      const span = to - from, middle = (from + to) / 2, act = { "+": () => zoom(0.8, middle), "=": () => zoom(0.8, middle), "-": () => zoom(1.25, middle), a: () => shift(-span / 10), d: () => shift(span / 10), 0: () => zoom(Infinity, middle) }[key];
      if (act) act();
      return Boolean(act);
    });
    const view = (a, b) => { from = Math.max(0, a); to = Math.min(p.cycles, Math.max(b, from + 10)); chart.repaint(); };
    const zoom = (factor, middle) => (factor === Infinity ? view(0, p.cycles) : view(middle - (middle - from) * factor, middle + (to - middle) * factor));
    const shift = (d) => { const span = to - from, a = Math.max(0, Math.min(p.cycles - span, from + d)); view(a, a + span); };
    chart.addEventListener("wheel", (e) => { e.preventDefault(); zoom(e.deltaY > 0 ? 1.25 : 0.8, from + e.offsetX * (to - from) / chart.clientWidth); }, { passive: false });
    chart.addEventListener("pointerdown", (e) => chart.setPointerCapture(e.pointerId));
    chart.addEventListener("pointermove", (e) => { if (chart.hasPointerCapture(e.pointerId)) shift(-e.movementX * (to - from) / chart.clientWidth); });
    const pipelines = t.folds.filter((f) => f.stages > 1).map((f) => note("Pipeline " + f.function + ": " + f.stages + " stages, " + f.count + " turns and " + f.ramp +
      " more slots to fill and drain it, each of " + plain(f.slot) + " cycles. One turn is drawn as if it ran alone; in truth the stages of several turns overlap."));
    return [heading("Timeline in cycles; a lane for each IPU" + (p.replicas > 1 ? " of a replica" : "")), chart, legend(LENGTHS.map((k) => [k, k])),
      note("Scroll or + and − to zoom, drag or A and D to move, 0 to see all, arrow keys to read. Where steps are narrower than a pixel, the height of a colour is its share. Links between IPUs count as exchange."), ...pipelines,
      asTable(() => table([numbers("from cycle", (i) => t.start[i]), words("step", (i) => p.steps[t.row[i]].name), numbers("IPU", (i) => t.ipu[i], String),
        ...LENGTHS.map((k) => numbers(k, (i) => t[k][i])), words("from", (i) => where(p.steps[t.row[i]].origin))], t.row.map((_, i) => i).filter((i) => t.row[i] >= 0 && end[i] > from && t.start[i] < to), undefined, "Moments in view"))];
  },
};

const say = (text) => main.replaceChildren(make("p", { class: "why", role: "alert" }, text));
const address = ({ program, page, ipu }) => "#" + [program, page, ...(ipu === null ? [] : [ipu])].join("/");
const go = (change) => { location.hash = address({ ...state, ...change }); };
function show() {
  const p = profiles[state.program];
  tip.hidden = true;
  document.title = p.name + " on " + p.system + " – Abele";
  element("program").value = String(state.program);
  element("tabs").replaceChildren(...Object.keys(pages).map((name) => make("a", { href: address({ ...state, page: name, ipu: null }), "aria-current": name === state.page ? "page" : null }, name)));
  if (p.schema !== SCHEMA) say("This profile has version " + p.schema + "; this page draws version " + SCHEMA + ". Write the report again with `abele profile … --report`.");
  else main.replaceChildren(...pages[state.page](p).filter(Boolean));
}
function follow() {
  const [index, name, ipu] = location.hash.slice(1).split("/");
  state.program = Math.min(profiles.length - 1, Math.max(0, parseInt(index, 10) || 0));
  state.page = Object.hasOwn(pages, name) ? name : "Verdict";
  state.ipu = /^\d+$/.test(ipu || "") ? Number(ipu) : null;
  show();
}
addEventListener("error", (e) => say("This page could not be drawn (" + e.message + "). The console has more; the numbers are also in `abele profile … --json`."));
try {
  profiles = JSON.parse(element("data").textContent).map(unpack);
} catch (error) {
  say("The data in this file is damaged or cut short (" + error.message + "). Write the report again.");
}
if (profiles.length) {
  profiles.forEach((p, i) => element("program").append(make("option", { value: i }, p.name + " on " + p.system)));
  element("program").addEventListener("change", (e) => go({ program: e.target.value, ipu: null }));
  addEventListener("hashchange", follow);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  follow();
} else if (!main.querySelector(".why")) say("There is no profile in this report: no program was compiled.");
