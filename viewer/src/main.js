// The frame around the pages: opens the data, shows the page that the address names, and hands on what is chosen.

import "./style.css";
import { forgetFills } from "./chart.js";
import { copy, make, problem, select } from "./dom.js";
import { titled } from "./format.js";
import { open } from "./source.js";
import { State, encoded } from "./state.js";
import { pages } from "./pages/index.js";

/**
 * @typedef {import("./state.js").Selection} Selection
 * @typedef {{source: import("./source.js").Source, state: State, program: import("./source.js").Program, table(name: string): Promise<import("./packet.js").Table>, json(name: string): Promise<any>}} Context
 * `table("tensors")` is that of the chosen program.
 * @typedef {{node: Node, update?: (now: Selection, before: Selection) => boolean, close?: () => void}} Shown
 * `update` follows a change of the selection, or answers false to be shown anew; `close` when the page is left.
 * @typedef {{name: string, title: string, show: (context: Context) => Promise<Shown>, needs?: string[], keep?: boolean, missing?: (context: Context) => string}} Page
 * `needs` are tables that it asks for. A page to `keep` is not closed when it is left, and follows the selection (`update`) when it is there again.
 * `missing` says why there is nothing to show, or is empty.
 */

const MISSING_PAGE = "There is no such page in this report.";
const NO_REPORT = "There is no report yet: a run has one when it has ended.";

/** Until the browser has nothing to do. */
const idle = () => new Promise((resolve) => { if ("requestIdleCallback" in window) requestIdleCallback(resolve); else setTimeout(resolve, 100); });

class Frame {
  /** @param {import("./source.js").Source} source */
  constructor(source) {
    this.source = source;
    this.state = new State();
    if (source.index.live && !location.hash) this.state.set({ page: "live" }, true);
    this.main = make("main", { id: "main", tabindex: -1 });
    this.title = make("h1", null, source.index.title || "Abele");
    this.nav = make("nav", { "aria-label": "Pages" });
    this.programs = select("Program", source.index.programs.map((p) => [p.id, titled(p)]), "",
      (program) => this.state.set({ program: Number(program), operation: null, ipu: null, tile: null, from: null, to: null }));
    this.help = this.#help();
    /** @type {import("./main.js").Shown | null} */
    this.shown = null;
    /** What is shown: its page, and the selection that it follows. */
    this.now = { page: "", selection: this.state.selection };
    /** Pages that were left, to be shown again. @type {Map<string, {shown: Shown, selection: Selection}>} */
    this.kept = new Map();
    this.turn = 0;
    document.body.append(
      make("header", null, this.title, this.programs, this.nav,
        make("span", { class: "tools", style: "margin:0 0 0 auto" },
          make("button", { onclick: () => this.#copyLink(), title: "Copy a link to exactly this" }, "Copy link"),
          make("button", { onclick: () => this.#theme(), title: "Light or dark" }, "◐"),
          make("button", { onclick: () => this.help.showModal(), title: "Keys (?)" }, "?"))),
      source.index.thinned ? make("p", { class: "note thinned", role: "note" }, source.index.thinned) : "",
      this.main, make("div", { id: "said", class: "hidden-but-said", "aria-live": "polite" }), this.help);
    this.state.on((now, before) => this.#changed(now, before));
    addEventListener("keydown", (e) => this.#key(e));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#repainted());
    this.show();
  }

  get selection() {
    return this.state.selection;
  }

  /** @returns {Context} */
  context() {
    const { source, state } = this;
    const program = source.index.programs.find((p) => p.id === this.selection.program) ?? source.index.programs[0];
    const of = (/** @type {string} */ name) => `p/${program?.id ?? 0}/${name}`;
    return { source, state, program, table: (name) => source.table(of(name)), json: (name) => source.json(of(name)) };
  }

  async show() {
    const turn = ++this.turn, context = this.context();
    const missing = (/** @type {Page} */ page) => page.missing?.(context) || (context.program || page.name === "live" ? "" : NO_REPORT);
    this.programs.value = String(context.program?.id ?? "");
    this.programs.hidden = this.source.index.programs.length < 2 || this.selection.page === "live"; // it has its own
    this.title.classList.toggle("hidden-but-said", !this.programs.hidden); // the choice says it too
    this.nav.replaceChildren(...pages.map((page) => {
      const why = missing(page);
      return make("a", { href: encoded({ ...this.selection, page: page.name, view: "" }), "aria-current": page.name === this.selection.page ? "page" : null,
        "aria-disabled": why ? "true" : null, title: why || null }, page.title);
    }));
    const page = pages.find((p) => p.name === this.selection.page);
    document.title = [page?.title, context.program?.name, "Abele"].filter(Boolean).join(" · ");
    this.main.setAttribute("aria-busy", "true");
    try {
      if (!page) throw new Error(MISSING_PAGE);
      const why = missing(page);
      if (why) throw new Error(why);
      if (!this.#again(page)) {
        const shown = await page.show(context);
        if (turn !== this.turn) { shown.close?.(); return; }
        this.#leave();
        this.shown = shown;
        this.now = { page: page.name, selection: this.selection };
        this.main.replaceChildren(shown.node);
      }
    } catch (error) {
      if (turn !== this.turn) return;
      this.#leave();
      this.main.replaceChildren(problem(error));
    }
    this.main.removeAttribute("aria-busy");
    document.documentElement.dataset.shown = this.selection.page; // for tests, and for whoever waits for a page
    this.#ahead();
  }

  /** While nobody waits for anything: fetches what the other pages need, and makes them as if they had been seen before. */
  async #ahead() {
    const { turn } = this, context = this.context(), free = async () => { await idle(); return turn === this.turn; };
    for (const page of context.program ? pages : []) {
      if (!page.keep || page.missing?.(context)) continue;
      for (const name of page.needs ?? []) {
        if (!await free()) return; // what is asked for now comes first
        await context.table(name).catch(() => {}); // the page itself says what is wrong
      }
      if (!await free()) return;
      if (page.name === this.selection.page || this.kept.has(page.name)) continue;
      const { selection } = this, shown = await page.show(context).catch(() => null);
      if (shown && turn === this.turn) this.kept.set(page.name, { shown, selection });
      else shown?.close?.();
    }
    document.documentElement.dataset.ahead = "done"; // for measurements
  }

  /** Puts what is shown aside, or ends it. */
  #leave() {
    const { shown, now } = this, page = pages.find((each) => each.name === now.page);
    this.shown = null;
    if (!shown) return;
    if (page?.keep && now.selection.program === this.selection.program && page.name !== this.selection.page) this.kept.set(page.name, { shown, selection: now.selection });
    else shown.close?.();
  }

  /** Shows a page that was put aside, if it can follow what has been chosen since. @param {Page} page */
  #again(page) {
    const old = this.kept.get(page.name);
    if (!old) return false;
    this.kept.delete(page.name);
    if (old.selection.program !== this.selection.program) { old.shown.close?.(); return false; }
    this.#leave();
    this.main.replaceChildren(old.shown.node);
    if (!old.shown.update?.(this.selection, old.selection)) { old.shown.close?.(); return false; }
    this.shown = old.shown;
    this.now = { page: page.name, selection: this.selection };
    return true;
  }

  /** @param {Selection} now @param {Selection} before */
  #changed(now, before) {
    if (now.page === before.page && now.page === this.now.page && now.program === before.program && this.shown?.update?.(now, before)) {
      this.now.selection = now;
      for (const link of this.nav.children) {
        const page = pages[[...this.nav.children].indexOf(link)];
        link.setAttribute("href", encoded({ ...now, page: page.name, view: "" }));
      }
      return;
    }
    this.show();
  }

  /** @param {KeyboardEvent} e */
  #key(e) {
    const typing = e.target instanceof HTMLElement && /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName);
    if (e.ctrlKey || e.metaKey || e.altKey || this.help.open) return;
    if (e.key === "Escape") {
      if (typing) /** @type {HTMLElement} */ (e.target).blur();
      this.state.set({ operation: null, tile: null, from: null, to: null, search: "" });
    } else if (typing) return;
    else if (e.key === "?") this.help.showModal();
    else if (e.key === "/") /** @type {HTMLElement | null} */ (this.main.querySelector("input[type=search]"))?.focus();
    else if (/^[1-9]$/.test(e.key) && pages[Number(e.key) - 1]) this.state.set({ page: pages[Number(e.key) - 1].name, view: "" });
    else return;
    e.preventDefault();
  }

  async #copyLink() {
    await copy(location.href, "Link");
  }

  #theme() {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    this.#repainted();
  }

  #repainted() {
    forgetFills();
    for (const { shown } of this.kept.values()) shown.close?.();
    this.kept.clear();
    this.show();
  }

  #help() {
    const keys = [["1 … 8", "the pages"], ["/", "search"], ["j k, arrows", "next and previous row"], ["Enter", "open or choose"], ["← →", "along a chart (with Shift faster)"],
      ["w s, + −, Ctrl and wheel", "zoom a chart"], ["a d, Shift and drag", "move a chart"], ["drag, or [ and ]", "choose a range"], ["f, 0", "see what is chosen, or all of it (Timeline, graph)"], ["m", "go to the largest cell (Exchange)"], ["Esc", "choose nothing"], ["?", "these keys"]];
    return /** @type {HTMLDialogElement} */ (make("dialog", { "aria-label": "Keys" },
      make("table", null, make("tbody", null, ...keys.map(([key, text]) => make("tr", null, make("td", { class: "words" }, make("kbd", null, key)), make("td", { class: "words" }, text))))),
      make("form", { method: "dialog" }, make("button", null, "Close"))));
  }
}

open().then((source) => new Frame(source), (error) => {
  document.body.append(make("main", null, problem(error)));
});
