// The model as a diagram made from its graph: one row per layer, every stage with a picture of its values. A stage opens in its place.

import { button, h, map as mapCanvas, slider } from "./dom.js";
import { openStage } from "./stage.js";
import { heat } from "./views/heat.js";
import { headline } from "./answer.js";
import { readable } from "./tokens.js";
import { percent, percentile, short } from "./views/numbers.js";

export const id = "flow";
export const title = { en: "Flow", zh: "流程" };
export const needs = "input";

const FIT = [24, 48];
// More layers than this fold: the first and the last stay.
const MOST_ROWS = 8;
const PLAY_MS = 160;
const MOST_TOKENS = 60;
// The colours of a small picture reach as far as so many of its values.
const MOST_PERCENT = 98;

let page = null;

export function mount(place, app) {
  page = new Flow(place, app);
  return page.draw();
}

export function unmount() {
  page?.pause();
  page = null;
}

export function update(change) {
  if (!page) return;
  if (change.has("input") || change.has("edits") || change.has("other-input")) page.draw();
  else if (change.has("step")) page.open(page.app.state.step);
  if (change.has("answer")) page.fillEnds();
  if (["token", "head", "input", "edits"].some((name) => change.has(name))) page.opened?.update(change);
}

class Flow {
  constructor(place, app) {
    Object.assign(this, { place, app, cards: new Map(), opened: null, timer: null, at: -1, isUnfolded: false, key: "" });
    this.rows = h("div", { class: "flow-rows" });
    this.playing = button(app.t("play"), () => (this.timer ? this.pause() : this.play()), { class: "primary", "aria-pressed": "false" });
    this.progress = slider(app.t("stage"), { min: 0, max: 1, step: 1, value: 0, format: (at) => this.stages?.[at]?.name ?? "" }, (at) => {
      this.pause();
      this.reach(at);
    });
    this.place.append(
      h("div", { class: "head" }, h("h2", {}, app.t("flow-title")), h("p", { class: "lede" }, app.t("flow-lede"))),
      h("div", { class: "controls" }, this.playing, this.progress),
      this.rows);
  }

  async draw() {
    const { app } = this;
    const [graph, got] = await Promise.all([app.graph(), app.look({ stages: { fit: FIT } }, { slot: "stages" })]);
    if (!got || page !== this) return;
    const key = `${app.model.name} ${graph.stages.map(({ path, shape }) => path + shape).join()}`;
    if (key !== this.key) {
      this.key = key;
      // What goes in stands in a row of its own.
      this.#build(graph.stages.filter(({ op }) => op !== "input"));
    }
    this.arrays = got.arrays;
    this.fillEnds();
    for (const stage of this.stages) this.#paint(stage);
    await this.opened?.ready;
  }

  // ---- Rows: what is in no block stands together.

  #build(stages) {
    const { app } = this;
    this.stages = stages;
    this.cards.clear();
    this.progress.input.max = stages.length - 1;
    const groups = [];
    for (const stage of stages) {
      if (groups.at(-1)?.fold !== (stage.fold ?? null)) groups.push({ fold: stage.fold ?? null, stages: [] });
      groups.at(-1).stages.push(stage);
    }
    // Layers of one stack stand together; the first of each is large, so that its stages have names.
    const stacks = Map.groupBy(groups.filter(({ fold }) => fold), ({ fold }) => stackOf(fold));
    this.stacks = new Set(stacks.keys());
    const first = [...stacks.values()].map(([layer]) => layer);
    const folded = (layers) => (layers.length > MOST_ROWS && !this.isUnfolded ? layers.slice(2, -2) : []);
    const hidden = new Map([...stacks.values()].flatMap((layers) => folded(layers).map((layer, at, all) => [layer, at === 0 ? all.length : 0])));
    this.rows.replaceChildren(this.#ends("in"));
    for (const group of groups) {
      if (hidden.has(group)) {
        if (hidden.get(group)) this.rows.append(button(app.t("unfold", { n: hidden.get(group) }), () => {
          this.isUnfolded = true;
          this.key = "";
          this.draw();
        }, { class: "unfold" }));
        for (const stage of group.stages) this.cards.set(stage.path, null);
        continue;
      }
      this.rows.append(this.#row(group, first.includes(group) || !group.fold));
    }
    this.rows.append(this.#ends("out"));
    const step = app.state.step;
    this.opened = null;
    if (step) this.open(step);
  }

  // The input before the first stage, the answer behind the last.
  #ends(end) {
    const isPicture = end === "in" && this.app.model.takes !== "text";
    const place = h("div", { class: isPicture ? "end picture" : "end" });
    this[end] = place;
    return h("div", { class: "flow-row bare" }, h("span", { class: "row-name plain" }, h("span", {}, this.app.t(end === "in" ? "give" : "answer"))), place);
  }

  async fillEnds() {
    const { app } = this;
    if (!this.in || !app.input) return;
    if (app.input.grid || app.model.takes === "audio") {
      const address = await app.seen().catch(() => null);
      const image = this.in.querySelector("img") ?? h("img", { alt: app.t("as-seen") });
      if (address && image.src !== address) image.src = address;
      image.classList.toggle("pixels", (app.input.grid?.image[1] ?? 0) < 100);
      if (!image.isConnected) this.in.replaceChildren(image, h("span", { class: "hint" }, app.t("as-seen")));
    } else this.in.replaceChildren(...app.input.tokens.slice(0, MOST_TOKENS).map(({ text }) => h("span", { class: "token plain" }, readable(text))));
    const best = app.answer && headline(app, app.answer);
    if (best) this.out.replaceChildren(h("strong", {}, best.text), h("span", { class: "number" }, best.score === null ? "" : percent(best.score)));
  }

  #row({ fold, stages }, isLarge) {
    const { app } = this;
    const cells = stages.flatMap((stage, at) => [at > 0 || fold ? h("span", { class: "arrow", "aria-hidden": "true" }, this.#arrow(stage)) : "", this.#card(stage, fold)]);
    const row = h("div", { class: "flow-row", role: "group", "aria-label": fold ?? app.t("outside") });
    const [stack, layer] = fold ? [stackOf(fold), fold.split(".").at(-1)] : [];
    const name = fold
      ? h("button", { type: "button", class: "row-name", "aria-expanded": String(isLarge), onclick: () => {
        const isOpen = row.classList.toggle("large");
        name.setAttribute("aria-expanded", String(isOpen));
      } }, h("b", {}, layer), h("span", {}, stack))
      : h("span", { class: "row-name plain" });
    row.classList.toggle("large", isLarge);
    row.classList.toggle("bare", !fold);
    row.append(name, h("div", { class: "flow-cells" }, cells));
    return row;
  }

  // How a stage goes on from the one before it: adds it to a stream, reads it, or has nothing to do with it.
  #arrow(stage) {
    if (stage.joins) return "⊕";
    const before = this.stages[this.stages.indexOf(stage) - 1];
    return stage.reads?.includes(before?.path) ? "→" : "";
  }

  #card(stage, fold) {
    const { app } = this;
    const canvas = mapCanvas(app.t("values-of", { name: stage.name ?? stage.path }), { "aria-hidden": "true" });
    const said = h("span", { class: "stats number" });
    const label = fold ? (stage.stage === fold ? app.t("stream") : stage.path.slice(fold.length + 1)) : this.stacks.has(stage.path) ? `${stage.path}: ${app.t("stream")}` : stage.name ?? stage.path;
    const card = h("button", { type: "button", class: "stage-card", "aria-expanded": "false", dataset: { path: stage.path }, title: `${stage.path} · ${stage.op} · ${stage.shape.join(" × ")}`, onclick: () => app.set({ step: this.openPath === stage.path ? null : stage.path }, { replace: true }) },
      h("span", { class: "name" }, label), canvas, h("span", { class: "shape number" }, stage.shape.join(" × ")), said);
    this.cards.set(stage.path, { card, canvas, said });
    return card;
  }

  #paint(stage) {
    const card = this.cards.get(stage.path);
    const array = this.arrays[stage.path];
    // Logits of every token would be millions of numbers: they are not computed for a picture.
    if (card) card.card.classList.toggle("unseen-value", !array);
    if (card && !array) card.said.textContent = this.app.t("too-large-to-draw");
    if (!card || !array) return;
    const [rows, columns] = array.shape.length > 1 ? array.shape.slice(-2) : [1, array.shape[0] ?? 1];
    // A few large values would leave all others one colour.
    const sizes = Float32Array.from(array.data, Math.abs).sort();
    const reach = percentile(sizes, MOST_PERCENT) || sizes.at(-1) || 1;
    const isSigned = (array.low ?? -1) < 0;
    heat(card.canvas, { values: array.data, rows, columns, low: isSigned ? -reach : 0, high: reach, diverging: isSigned });
    card.said.textContent = `${short(array.mean ?? 0)} ± ${short(array.std ?? 0)}`;
  }

  // ---- Play.

  play() {
    this.playing.textContent = this.app.t("pause");
    this.playing.setAttribute("aria-pressed", "true");
    if (this.at >= this.stages.length - 1) this.at = -1;
    this.place.classList.add("playing");
    this.timer = setInterval(() => {
      this.reach(this.at + 1);
      if (this.at >= this.stages.length - 1) this.pause();
    }, PLAY_MS);
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.playing.textContent = this.app.t("play");
    this.playing.setAttribute("aria-pressed", "false");
    if (this.at >= (this.stages?.length ?? 0) - 1) this.place.classList.remove("playing");
  }

  // The data has come so far: what is behind it is not there yet.
  reach(at) {
    this.at = at;
    this.place.classList.toggle("playing", at < this.stages.length - 1);
    this.progress.show(at);
    this.stages.forEach(({ path }, place) => {
      const card = this.cards.get(path)?.card;
      card?.classList.toggle("reached", place <= at);
      card?.classList.toggle("now", place === at);
    });
    const now = this.cards.get(this.stages[at]?.path)?.card;
    const box = now?.getBoundingClientRect();
    if (box && (box.top < 80 || box.bottom > innerHeight - 20)) now.scrollIntoView({ block: "center", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  }

  // ---- One stage, opened below its row.

  open(path) {
    this.opened?.element.remove();
    this.opened = null;
    this.openPath = null;
    for (const one of this.cards.values()) one?.card.setAttribute("aria-expanded", "false");
    const stage = this.stages?.find((one) => one.path === path);
    if (!stage) return;
    if (this.cards.get(path) === null) {
      this.isUnfolded = true;
      this.#build(this.stages);
      for (const one of this.stages) this.#paint(one);
      return;
    }
    const { card } = this.cards.get(path);
    this.openPath = path;
    card.setAttribute("aria-expanded", "true");
    this.opened = openStage(this.app, stage, this.stages, () => {
      this.app.set({ step: null }, { replace: true });
      card.focus();
    });
    card.closest(".flow-row").after(this.opened.element);
  }
}

// The stack of a layer: `decoder` of `decoder.3`.
const stackOf = (fold) => fold.split(".").slice(0, -1).join(".");
