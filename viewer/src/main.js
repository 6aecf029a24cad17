// The frame around the pages: opens the data, shows the page that the address names, and hands on what is chosen.

import "./style.css";
import { forgetFills } from "./chart.js";
import { copy, drawn, idle, make, problem, select } from "./dom.js";
import { titled } from "./format.js";
import { open } from "./source.js";
import { State, encoded } from "./state.js";
import { pages } from "./pages/index.js";

/**
 * @typedef {import("./state.js").Selection} Selection
 * @typedef {{source: import("./source.js").Source, state: State, program: import("./source.js").Program, brief?: boolean, table(name: string): Promise<import("./packet.js").Table>, json(name: string): Promise<any>}} Context
 * `table("tensors")` is that of the chosen program. With `brief` those tables of a page that are there in brief are so: for
 * the picture that is shown until the tables themselves have come.
 * @typedef {{node: Node, update?: (now: Selection, before: Selection) => boolean, close?: () => void}} Shown
 * `update` follows a change of the selection, or answers false to be shown anew; `close` when the page is left.
 * @typedef {{name: string, title: string, show: (context: Context) => Promise<Shown>, needs?: string[], first?: string[], brief?: Record<string, string>, keep?: boolean, missing?: (context: Context) => string}} Page
 * `needs` are tables that it asks for, and `first` small ones of these that its first picture needs; `brief` those that this picture can do with in brief, and what they are called. A page to `keep` is not closed when it is left, and follows the selection (`update`) when it is there again.
 * `missing` says why there is nothing to show, or is empty.
 */

const MISSING_PAGE = "There is no such page in this report.";
const NO_REPORT = "There is no report yet: a run has one when it has ended.";

/** Whether nothing is chosen that a picture in brief does not show. @param {Selection} selection */
const plain = ({ ipu, tile, operation, from, to, search, view }) => [ipu, tile, operation, from, to].every((value) => value === null) && !search && !view;

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
    /** Whether what is shown is in brief. */
    this.brief = false;
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

  /** @param {Record<string, string>} [brief] tables that are taken in brief @returns {Context} */
  context(brief) {
    const { source, state } = this, program = this.#program(), of = (/** @type {string} */ name) => this.#of(name);
    return { source, state, program, brief: brief !== undefined, table: (name) => source.table(of(brief?.[name] ? "brief/" + brief[name] : name)), json: (name) => source.json(of(name)) };
  }
  #program() {
    return this.source.index.programs.find((p) => p.id === this.selection.program) ?? this.source.index.programs[0];
  }
  /** What the data call a table of the chosen program. @param {string} name */
  #of(name) {
    return `p/${this.#program()?.id ?? 0}/${name}`;
  }

  /** The page in brief, where its tables are not here yet and would take longer. @param {Page} page @param {Context} context */
  async #briefly(page, context) {
    const brief = Object.values(page.brief ?? {});
    if (!brief.length || !plain(this.selection) || (page.needs ?? []).every((name) => this.source.held(this.#of(name)))) return null;
    const known = (await context.json("summary")).brief ?? [];
    if (!brief.every((name) => known.includes(name) && this.source.has(this.#of("brief/" + name)))) return null;
    return page.show(this.context(page.brief)).catch(() => null); // the page itself says what is wrong
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
      this.source.hurry([...(page.needs ?? []), ...Object.values(page.brief ?? {}).map((name) => "brief/" + name)].map((name) => this.#of(name)));
      if (!this.#again(page)) {
        const brief = await this.#briefly(page, context);
        if (turn !== this.turn) { brief?.close?.(); return; }
        if (brief) {
          this.#put(brief, true);
          for (const chart of this.main.querySelectorAll(".chart")) chart.toggleAttribute("inert", true); // what is under the mouse is not told of sums
          this.#said();
          await drawn();
          if (turn !== this.turn) return;
        }
        const shown = await page.show(context);
        if (turn !== this.turn) { shown.close?.(); return; }
        this.#put(shown, false);
      }
    } catch (error) {
      if (turn !== this.turn) return;
      this.#leave();
      this.main.replaceChildren(problem(error));
    }
    this.#said();
    this.#ahead();
  }

  /** Shows something in the place of what is there. In the place of the same in brief it is where that was scrolled to, and
   * has the focus that that had. @param {Shown} shown @param {boolean} brief */
  #put(shown, brief) {
    const same = this.brief && this.now.page === this.selection.page, { scrollY } = window, path = [];
    for (let node = document.activeElement; same && node && node !== this.main && this.main.contains(node); node = node.parentElement) path.unshift([...(node.parentElement?.children ?? [])].indexOf(node));
    this.#leave();
    this.shown = shown;
    this.brief = brief;
    this.now = { page: this.selection.page, selection: this.selection };
    this.main.replaceChildren(shown.node);
    this.main.toggleAttribute("data-brief", brief);
    if (!same) return;
    window.scrollTo({ top: scrollY });
    /** @type {Element | undefined} */
    let node = this.main;
    for (const place of path) node = node?.children[place];
    if (path.length && node instanceof HTMLElement) node.focus({ preventScroll: true });
  }

  /** The page is there. */
  #said() {
    this.main.removeAttribute("aria-busy");
    document.documentElement.dataset.shown = this.selection.page; // for tests, and for whoever waits for a page
  }

  /** While nobody waits for anything: fetches what the other pages need, and makes them as if they had been seen before. */
  async #ahead() {
    const { turn } = this, context = this.context(), free = async () => { await idle(); return turn === this.turn; };
    const brief = context.program ? (await context.json("summary").catch(() => ({}))).brief ?? [] : [], fresh = pages.filter((page) => !this.kept.has(page.name) && !page.missing?.(context));
    const names = fresh.flatMap((page) => [...(page.first ?? []), ...Object.values(page.brief ?? {}).filter((name) => brief.includes(name)).map((name) => "brief/" + name)]);
    await Promise.all(context.program ? names.filter((name) => this.source.has(this.#of(name))).map((name) => this.source.ahead(this.#of(name)).catch(() => {})) : []);
    for (const page of context.program ? pages : []) {
      if (!page.keep || page.missing?.(context)) continue;
      for (const name of page.needs ?? []) {
        if (!await free()) return; // what is asked for now comes first
        await this.source.ahead(this.#of(name)).catch(() => {}); // the page itself says what is wrong
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
    const { shown, now, brief } = this, page = pages.find((each) => each.name === now.page);
    this.shown = null;
    this.brief = false;
    this.main.removeAttribute("data-brief");
    if (!shown) return;
    if (page?.keep && !brief && now.selection.program === this.selection.program && page.name !== this.selection.page) this.kept.set(page.name, { shown, selection: now.selection });
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
    if (now.page === before.page && now.page === this.now.page && now.program === before.program && !this.brief && this.shown?.update?.(now, before)) {
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
