// Does it fit, how fast is it, what next.

import { card, heading, make, note } from "../dom.js";
import { bytes, many, percent, plain, seconds } from "../format.js";

/** @type {import("../main.js").Page} */
export const verdict = {
  name: "verdict",
  title: "Verdict",
  async show(context) {
    const p = await context.json("summary"), m = p.tile_memory;
    return { node: make("section", null,
      heading([p.name, p.mode, "on", p.system].filter(Boolean).join(" ")),
      make("div", { class: "cards" },
        card("Fits?", m.fits ? "Yes" : "No, " + bytes(m.gap) + " over", `fullest tile ${bytes(m.max)} of ${bytes(m.limit)}`, m.fits ? "good" : "bad"),
        card("Modelled time", seconds(p.seconds), `${plain(p.cycles)} cycles for ${many(p.samples, "sample")}`),
        card("Throughput", plain(p.throughput) + " /s", "samples a second"),
        card("Arithmetic", percent(p.peak_fraction, 1), "of peak")),
      ...p.notes.map(note)) };
  },
};
