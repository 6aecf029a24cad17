"use strict";
// Draws the profiles that are in the page. It sorts, scales and bins for the screen; every number comes from the data.
const profiles = JSON.parse(document.getElementById("data").textContent);
const KINDS = ["compute", "exchange", "links", "sync", "host", "bubble"];
const main = document.getElementById("main"), tip = document.getElementById("tip");
let current = 0, page = "Verdict";

const make = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.filter((c) => c !== undefined && c !== null));
  return node;
};
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const count = (x) => Math.round(x).toLocaleString("en");
const percent = (x) => (100 * x).toFixed(1) + " %";
const bytes = (x) => {
  for (const [unit, f] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) if (Math.abs(x) >= f) return (x / f).toFixed(1) + " " + unit;
  return Math.round(x) + " B";
};
const time = (x) => {
  for (const [unit, f] of [["s", 1], ["ms", 1e3], ["µs", 1e6]]) if (x * f >= 1) return (x * f).toFixed(2) + " " + unit;
  return (x * 1e9).toFixed(1) + " ns";
};
const where = (o) => (o.file ? o.file + ":" + o.line : "") + (o.module ? " in " + o.module : "");

function canvas(height, label, draw, hover) {
  const node = make("canvas", { role: "img", "aria-label": label, tabindex: 0 });
  node.style.height = height + "px";
  const paint = () => {
    const scale = window.devicePixelRatio || 1, width = node.clientWidth || 900;
    node.width = width * scale; node.height = height * scale;
    const g = node.getContext("2d");
    g.scale(scale, scale); g.font = "11px system-ui"; draw(g, width, height);
  };
  new ResizeObserver(paint).observe(node);
  if (hover) {
    node.addEventListener("mousemove", (e) => {
      const text = hover(e.offsetX, e.offsetY, node.clientWidth, height);
      tip.hidden = !text; tip.textContent = text || "";
      tip.style.left = Math.min(e.clientX + 12, innerWidth - 320) + "px"; tip.style.top = e.clientY + 14 + "px";
    });
    node.addEventListener("mouseleave", () => { tip.hidden = true; });
  }
  node.repaint = paint;
  return node;
}
const legend = (entries) => make("p", { class: "key" }, ...entries.map(([name, c]) => {
  const box = make("i"); box.style.background = colour(c); return make("span", {}, box, name);
}));
function table(columns, rows, initial) {
  let by = initial, down = true;
  const body = make("tbody"), head = make("tr");
  const fill = () => {
    const sorted = by === undefined ? rows : [...rows].sort((a, b) => {
      const x = columns[by].value(a), y = columns[by].value(b);
      return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
    });
    body.replaceChildren(...sorted.slice(0, 2000).map((r) => make("tr", {}, ...columns.map((c) => make("td", {}, String((c.show || c.value)(r)))))));
  };
  columns.forEach((c, i) => head.append(make("th", { scope: "col", tabindex: 0, onclick: () => { down = by === i ? !down : true; by = i; fill(); },
    onkeydown: (e) => { if (e.key === "Enter") e.currentTarget.click(); } }, c.name)));
  fill();
  return make("div", { class: "scroll" }, make("table", {}, make("thead", {}, head), body));
}
const card = (name, value, note, kind) => make("div", { class: "card" }, make("small", {}, name), make("b", { class: kind }, value), note ? make("small", {}, note) : null);

const pages = {
  Verdict(p) {
    const m = p.tile_memory;
    const bar = canvas(34, "Cycles by kind", (g, w, h) => {
      let x = 0;
      for (const k of KINDS) { const part = w * p.cycles_by[k] / p.cycles; g.fillStyle = colour(k); g.fillRect(x, 0, part, h); x += part; }
    });
    return [
      make("h2", {}, p.name + " on " + p.system),
      make("div", { class: "cards" },
        card("Fits?", m.fits ? "Yes" : "No, " + bytes(m.gap) + " over", "fullest tile " + bytes(m.max) + " of " + bytes(m.limit), m.fits ? "good" : "bad"),
        card("Modelled time", time(p.seconds), count(p.cycles) + " cycles for " + p.samples + " sample(s)"),
        card("Throughput", count(p.throughput) + " /s", "samples a second"),
        card("Arithmetic", percent(p.peak_fraction), "of peak; " + (p.flops / 1e9).toFixed(2) + " GFLOP"),
        card("Energy", p.energy_joules.toPrecision(3) + " J", p.energy.basis),
        card("IPUs", String(p.ipus), p.replicas + " replica(s) of " + p.ipus_per_replica),
        p.wall_seconds ? card("Measured here", time(p.wall_seconds), "wall time of one run on this computer") : null),
      make("h2", {}, "Where the time goes"), bar,
      legend(KINDS.map((k) => [k + " " + percent(p.cycles_by[k] / p.cycles), k])),
      p.levers && p.levers.length ? make("h2", {}, "What would help (each was compiled)") : null,
      p.levers && p.levers.length ? table([
        { name: "change", value: (l) => l.change }, { name: "fullest tile", value: (l) => l.max, show: (l) => bytes(l.max) },
        { name: "fits", value: (l) => (l.fits ? "yes" : "no") }, { name: "throughput", value: (l) => l.throughput, show: (l) => count(l.throughput) + " /s" }], p.levers) : null,
      ...p.notes.map((n) => make("p", { class: "note" }, n)),
    ];
  },
  Memory(p) {
    const m = p.tile_memory, tiles = m.totals[m.fullest_ipu], top = Math.max(m.limit, m.max) * 1.05;
    const bars = canvas(220, "Peak bytes of every tile against the limit", (g, w, h) => {
      for (let x = 0; x < w; x++) {
        const a = Math.floor(x * tiles.length / w), b = Math.max(a + 1, Math.floor((x + 1) * tiles.length / w));
        let most = 0; for (let t = a; t < b; t++) most = Math.max(most, tiles[t]);
        g.fillStyle = colour(most > m.limit ? "bad" : "compute"); g.fillRect(x, h - h * most / top, 1, h * most / top);
      }
      line(g, w, h - h * m.limit / top, "limit " + bytes(m.limit));
    }, (x, y, w) => { const t = Math.min(tiles.length - 1, Math.floor(x * tiles.length / w)); return "tile " + t + ": " + bytes(tiles[t]); });
    const entries = Object.entries(m.categories).filter(([, v]) => v);
    return [
      make("h2", {}, "Tiles of IPU " + m.fullest_ipu + ", each at its own peak"), bars,
      make("h2", {}, "On the fullest tile (" + m.fullest_tile + ") at its peak"),
      table([{ name: "kind", value: (e) => e[0] }, { name: "bytes", value: (e) => e[1], show: (e) => bytes(e[1]) }, { name: "share", value: (e) => e[1], show: (e) => percent(e[1] / m.max) }], entries, 1),
      make("h2", {}, "Tensors live there at that moment"),
      table([
        { name: "tensor", value: (t) => t.source || t.operation || t.tensor }, { name: "type", value: (t) => t.type },
        { name: "kind", value: (t) => t.kind }, { name: "on this tile", value: (t) => t.bytes, show: (t) => bytes(t.bytes) },
        { name: "on all tiles", value: (t) => t.total_bytes, show: (t) => bytes(t.total_bytes) },
        { name: "from", value: (t) => (t.file ? t.file + ":" + t.line : "") + (t.module ? " in " + t.module : "") }], m.by_tensor, 3),
    ];
  },
  Liveness(p) {
    const m = p.tile_memory, high = m.curve.max, mean = m.curve.mean, top = Math.max(m.limit, m.max) * 1.05;
    const at = (i) => { const r = p.timeline.row[i]; return r >= 0 ? p.steps[r] : null; };
    const chart = canvas(300, "Bytes on the fullest tile over the program", (g, w, h) => {
      for (const [curve, c] of [[high, "compute"], [mean, "mean"]]) {
        g.fillStyle = colour(c);
        for (let x = 0; x < w; x++) {
          const a = Math.floor(x * curve.length / w), b = Math.max(a + 1, Math.floor((x + 1) * curve.length / w));
          let most = 0; for (let i = a; i < b; i++) most = Math.max(most, curve[i]);
          g.fillRect(x, h - h * most / top, 1, h * most / top);
        }
      }
      line(g, w, h - h * m.limit / top, "limit " + bytes(m.limit));
      const x = w * m.peak_step / Math.max(1, high.length); g.fillStyle = colour("bad"); g.fillRect(x, 0, 1.5, h);
    }, (x, y, w) => {
      const i = Math.min(high.length - 1, Math.floor(x * high.length / w)), s = at(i);
      return "moment " + i + (s ? ": " + s.name + " " + s.types + "\n" + where(s.origin) : "") + "\nfullest tile " + bytes(high[i]) + ", mean " + bytes(mean[i]);
    });
    return [make("h2", {}, "Memory over the program"), chart, legend([["fullest tile", "compute"], ["mean over tiles", "mean"], ["peak", "bad"]])];
  },
  Operations(p) {
    const columns = (name) => [
      { name, value: (r) => r.key || "(made by the compiler)" }, { name: "steps", value: (r) => r.steps },
      { name: "times", value: (r) => r.times, show: (r) => count(r.times) },
      { name: "cycles", value: (r) => r.cycles, show: (r) => count(r.cycles) },
      { name: "share", value: (r) => r.cycles, show: (r) => percent(r.cycles / p.cycles) },
      ...KINDS.map((k) => ({ name: k, value: (r) => r.cycles_by[k], show: (r) => count(r.cycles_by[k]) })),
      { name: "MFLOP", value: (r) => r.flops, show: (r) => (r.flops / 1e6).toFixed(1) }];
    const find = make("input", { placeholder: "Find a step …", "aria-label": "Find a step" }), holder = make("div");
    const steps = () => {
      const word = find.value.toLowerCase();
      const rows = p.steps.filter((s) => !word || (s.name + " " + where(s.origin) + " " + s.types).toLowerCase().includes(word));
      holder.replaceChildren(table([
        { name: "step", value: (s) => s.name + "  " + s.types }, { name: "from", value: (s) => where(s.origin) }, { name: "phase", value: (s) => s.origin.phase },
        { name: "times", value: (s) => s.times, show: (s) => count(s.times) }, { name: "cycles each", value: (s) => s.cycles, show: (s) => count(s.cycles) },
        { name: "vertices", value: (s) => s.vertices, show: (s) => count(s.vertices) }, { name: "exchanged", value: (s) => s.bytes, show: (s) => bytes(s.bytes) },
        { name: "balance", value: (s) => s.balance, show: (s) => percent(s.balance) }], rows, 4));
    };
    find.addEventListener("input", steps); steps();
    return [make("h2", {}, "By operation"), table(columns("operation"), p.by_operation, 3), make("h2", {}, "By source line"), table(columns("line"), p.by_line, 3),
      make("h2", {}, "By module"), table(columns("module"), p.by_module, 3), make("h2", {}, "Steps"), find, holder];
  },
  Timeline(p) {
    const t = p.timeline, order = ["sync", "exchange", "compute", "host"], lanes = p.ipus_per_replica;
    let from = 0, to = p.cycles;
    const height = 40 + 44 * lanes;
    const chart = canvas(height, "Sync, exchange and compute over time; scroll to zoom, drag to move", (g, w) => {
      const px = (c) => (c - from) * w / (to - from);
      for (let i = 0; i < t.row.length; i++) {
        let x = t.start[i];
        for (const k of order) {
          const length = t[k][i];
          if (length && x + length > from && x < to) { g.fillStyle = colour(k); g.fillRect(px(x), 24 + 44 * Math.max(0, t.ipu[i]), Math.max(0.5, px(x + length) - px(x)), 36); }
          x += length;
        }
      }
      g.fillStyle = colour("soft");
      for (const f of t.folds) if (f.start + f.length > from && f.start < to) g.fillText(f.function + " ×" + f.count, Math.max(2, px(f.start)), 14);
    }, (x, y, w) => {
      const c = from + x * (to - from) / w;
      for (let i = 0; i < t.row.length; i++) {
        const length = t.sync[i] + t.exchange[i] + t.compute[i] + t.host[i];
        if (t.row[i] >= 0 && c >= t.start[i] && c < t.start[i] + length) {
          const s = p.steps[t.row[i]];
          return s.name + " " + s.types + "\n" + where(s.origin) + "\n" + order.map((k) => k + " " + count(t[k][i])).join(", ");
        }
      }
      return "";
    });
    const zoom = (factor, middle) => {
      const a = middle - (middle - from) * factor, b = middle + (to - middle) * factor;
      from = Math.max(0, a); to = Math.min(p.cycles, Math.max(b, from + 10)); chart.repaint();
    };
    chart.addEventListener("wheel", (e) => { e.preventDefault(); zoom(e.deltaY > 0 ? 1.25 : 0.8, from + e.offsetX * (to - from) / chart.clientWidth); }, { passive: false });
    let grabbed = null;
    chart.addEventListener("mousedown", (e) => { grabbed = e.clientX; });
    addEventListener("mouseup", () => { grabbed = null; });
    const shift = (d) => { const span = to - from; from = Math.max(0, Math.min(p.cycles - span, from + d)); to = from + span; chart.repaint(); };
    chart.addEventListener("mousemove", (e) => { if (grabbed !== null) { shift((grabbed - e.clientX) * (to - from) / chart.clientWidth); grabbed = e.clientX; } });
    chart.addEventListener("keydown", (e) => {
      const step = (to - from) / 10, middle = (from + to) / 2;
      if (e.key === "+") zoom(0.8, middle); else if (e.key === "-") zoom(1.25, middle);
      else if (e.key === "ArrowLeft") shift(-step); else if (e.key === "ArrowRight") shift(step); else if (e.key === "0") { from = 0; to = p.cycles; chart.repaint(); }
    });
    return [make("h2", {}, "Bulk-synchronous timeline (one turn of each loop; a lane for each IPU)"), chart, legend(order.map((k) => [k, k])),
      make("p", { class: "note" }, "Scroll or + and − to zoom, drag or arrow keys to move, 0 to see all.")];
  },
};
function line(g, w, y, text) {
  g.strokeStyle = colour("bad"); g.setLineDash([5, 4]); g.beginPath(); g.moveTo(0, y); g.lineTo(w, y); g.stroke(); g.setLineDash([]);
  g.fillStyle = colour("bad"); g.fillText(text, 4, y - 4);
}
function show() {
  const chosen = document.getElementById("program");
  chosen.value = String(current);
  document.getElementById("tabs").replaceChildren(...Object.keys(pages).map((name) => make("button", { role: "tab", "aria-selected": String(name === page),
    onclick: () => { location.hash = current + "/" + name; } }, name)));
  main.replaceChildren(...pages[page](profiles[current]).filter(Boolean));
}
function follow() {
  const [index, name] = location.hash.slice(1).split("/");
  current = Math.min(profiles.length - 1, Math.max(0, parseInt(index, 10) || 0));
  page = pages[name] ? name : "Verdict";
  show();
}
const select = document.getElementById("program");
profiles.forEach((p, i) => select.append(make("option", { value: i }, p.name + " on " + p.system)));
select.addEventListener("change", () => { location.hash = select.value + "/" + page; });
addEventListener("hashchange", follow);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
follow();
