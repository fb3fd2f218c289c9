// What each layer thinks: the answer that the model would give if it stopped there; of models of vectors how near that answer is to the last.

import { PLOT, lines } from "./chart.js";
import { h, slider } from "./dom.js";
import { readable } from "./tokens.js";
import { CATEGORIES } from "./views/colours.js";
import { minus, percent } from "./views/numbers.js";

export const id = "lens";
export const title = { en: "Layers", zh: "逐层" };
export const needs = "input";

const TOP = 5;
const MOST_SERIES = 5;
// What all tokens would be answered takes much longer than what one would. It is asked for once, when nothing has changed for so long
// (milliseconds), so that who types waits for the chart alone.
const PAUSE = 250;

let page = null;

export function mount(place, app) {
  page = new Lens(place, app);
  return page.draw();
}

export function unmount() {
  clearTimeout(page?.waiting);
  page = null;
}

export function update(change) {
  if (page?.isVector && change.size === 1 && change.has("token")) return;
  if (["input", "edits", "other-input", "token"].some((name) => change.has(name))) page?.draw(change);
}

class Lens {
  constructor(place, app) {
    Object.assign(this, { app, place, at: null });
    // The slider stands below the drawing, from its first place to its last.
    this.drawing = h("div", {});
    this.layer = slider(app.t("layer"), { min: 0, max: 1, step: 1, value: 0, format: (at) => this.placeName(at) }, (at) => this.#show(at));
    this.keys = h("ul", { class: "keys" });
    this.chart = h("div", { class: "chart", style: { "--from": PLOT.from, "--to": PLOT.to } }, h("div", {}, this.drawing, this.layer), this.keys);
    this.table = h("div", {});
    this.grid = h("div", {});
    this.says = h("p", { class: "says", "aria-live": "polite" });
    const { lede, one } = this.#words();
    place.append(h("div", { class: "head" }, h("h2", {}, app.t("lens-title")), h("p", { class: "lede" }, lede)),
      h("div", { class: "lens-desk" }, h("div", {}, h("h3", {}, one), this.chart, this.says, this.table), this.grid));
  }

  get isVector() { return this.app.model.gives === "vector"; }
  get hasGrid() { return !this.isVector && this.app.model.takes !== "image"; }

  // What a layer's stream goes through is what stands behind the last layer of this model.
  #words() {
    const { app } = this;
    const { final_norm: hasNorm, pooled_from: pooledFrom } = app.model;
    const of = pooledFrom ? { class_token: "class", patches: "patches" }[pooledFrom] : "text";
    if (this.isVector) return { lede: app.t(hasNorm ? "lens-lede-vector-norm" : "lens-lede-vector"), one: app.t("lens-one-vector") };
    return { lede: app.t(`lens-lede-${of}`, { end: app.t(hasNorm ? "end-norm-head" : "end-head") }), one: app.t("lens-one") };
  }

  placeName(at) {
    const layer = this.places?.[at]?.layer;
    return layer === null || layer === undefined ? this.app.t("before-first") : this.app.t("after-layer", { layer });
  }

  // The same as it stands on an axis and beside a row.
  #placeMark({ layer }) { return layer === null ? this.app.t("embedding-short") : String(layer); }

  async draw(change) {
    const { app } = this;
    if (this.hasGrid && !(change?.size === 1 && change.has("token"))) this.#drawGridSoon(change ? PAUSE : 0);
    const one = await app.look({ lens: this.isVector ? {} : { token: app.token, top: TOP, follow: MOST_SERIES } }, { slot: "lens" });
    if (page !== this || !one?.lens) return;
    this.places = one.lens.map((place) => ({ ...place, top: place.top ?? place.tokens?.[0]?.top ?? [] }));
    this.layer.input.max = this.places.length - 1;
    this.at = Math.min(this.at ?? this.places.length - 1, this.places.length - 1);
    this.#drawChart(one.followed ?? []);
    this.#show(this.at);
    if (this.hasGrid) this.#mark();
  }

  #drawGridSoon(pause) {
    clearTimeout(this.waiting);
    this.grid.setAttribute("aria-busy", "true");
    const mine = setTimeout(async () => {
      try {
        const all = await this.app.look({ lens: { token: "all", top: 1 } }, { slot: "lens-all" });
        if (page === this && this.waiting === mine && all?.lens) this.#drawGrid(all.lens);
      } catch (error) {
        if (page === this && this.waiting === mine) this.grid.replaceChildren(h("p", { class: "note warn" }, error.message));
      }
      if (this.waiting === mine) this.grid.removeAttribute("aria-busy");
    }, pause);
    this.waiting = mine;
  }

  // Answers that are likely at the end or on the way, or cosines with the vector at the end, as lines over the layers.
  #drawChart(followed) {
    const { app, places } = this;
    const step = Math.max(1, Math.ceil(places.length / 10));
    const xTicks = places.flatMap((place, at) => (at % step === 0 || at === places.length - 1 ? [[at, this.#placeMark(place)]] : []));
    if (this.isVector) {
      const values = places.map(({ cosine }) => cosine);
      const isSigned = Math.min(...values) < 0;
      const ticks = [...(isSigned ? [[-1, minus("-1")]] : []), [0, "0"], [0.5, "0.5"], [1, "1"]];
      this.drawing.replaceChildren(lines({ series: [{ name: "", colour: "var(--accent)", values }], low: isSigned ? -1 : 0, high: 1, ticks, xTicks, label: app.t("lens-chart-vector"), mark: this.at }));
      return;
    }
    const series = followed.map(({ index, label, scores }, at) => ({ name: readable(label ?? String(index)), colour: CATEGORIES[at % CATEGORIES.length], values: scores }));
    this.drawing.replaceChildren(lines({ series, low: 0, high: 1, ticks: [[0, "0"], [0.5, "50 %"], [1, "100 %"]], xTicks, label: app.t("lens-chart"), mark: this.at }));
    this.keys.replaceChildren(...series.map(({ name, colour, values }) => h("li", {}, h("i", { style: { background: colour } }), h("span", {}, name), h("span", { class: "number" }, percent(values.at(-1))))));
  }

  #show(at) {
    const { places } = this;
    this.at = at;
    this.layer.show(at);
    const rows = this.isVector ? this.#cosines(at) : this.#answers();
    const table = [...places.keys()].reverse().map((one) => h("tr", { class: one === at ? "lit" : null }, h("th", { scope: "row" }, this.placeName(one)), rows(places[one])));
    this.table.replaceChildren(h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": this.app.t("lens-table") }, h("table", { class: "lens-table" }, h("tbody", {}, table))));
    const mark = this.drawing.querySelector(".mark");
    if (mark) {
      const x = this.drawing.firstChild.viewBox.baseVal.width * (PLOT.from + (at / Math.max(1, places.length - 1)) * (PLOT.to - PLOT.from));
      mark.setAttribute("x1", x);
      mark.setAttribute("x2", x);
    }
  }

  // Says from where on the answer is first; gives what makes the row of a place.
  #answers() {
    const { app, places } = this;
    const last = places.at(-1).top[0]?.index;
    const first = places.findIndex((_, from) => places.slice(from).every(({ top }) => top[0]?.index === last));
    this.says.textContent = app.t("lens-says", { label: readable(places.at(-1).top[0]?.label ?? ""), place: this.placeName(first) });
    return ({ top }) => top.slice(0, TOP).map(({ label, index, score }) => h("td", { class: index === last ? "same" : null, style: { "--share": score.toFixed(3) } }, h("bdi", {}, readable(label ?? String(index))), " ", h("span", { class: "number" }, percent(score))));
  }

  #cosines(at) {
    const { app, places } = this;
    this.says.textContent = app.t("lens-says-vector", { place: this.placeName(at), cosine: minus(places[at].cosine.toFixed(3)) });
    return ({ cosine }) => h("td", { class: "number", style: { "--share": Math.max(0, cosine).toFixed(3) } }, minus(cosine.toFixed(3)));
  }

  // Every token in every layer: the most probable next one, in a stronger colour where it is surer.
  #drawGrid(places) {
    const { app } = this;
    const tokens = app.input.tokens ?? [];
    const cellOf = (top, token) => h("td", { style: { "--share": (top?.score ?? 0).toFixed(3) }, title: top ? `${readable(top.label)} ${percent(top.score)}` : "", dataset: { token }, onclick: () => app.set({ token }, { replace: true }) }, h("bdi", {}, readable(top?.label ?? "")));
    const rows = [...places.keys()].reverse().map((at) => h("tr", {}, h("th", { scope: "row", title: this.placeName(at) }, this.#placeMark(places[at])), (places[at].tokens ?? []).map((top, token) => cellOf((top?.top ?? top)?.[0], token))));
    this.grid.replaceChildren(h("h3", {}, app.t("lens-all")), h("p", { class: "hint" }, app.t("lens-all-hint")),
      h("div", { class: "scroll lens-all", tabindex: 0, role: "region", "aria-label": app.t("lens-all") }, h("table", { class: "lens-grid" },
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, app.t("layer")), tokens.map(({ text }, token) => h("th", { scope: "col" }, h("button", { type: "button", class: "quiet", dataset: { token }, onclick: () => app.set({ token }, { replace: true }) }, readable(text)))))),
        h("tbody", {}, rows))));
    this.#mark();
  }

  #mark() {
    for (const cell of this.grid.querySelectorAll("[data-token]")) cell.classList.toggle("lit", Number(cell.dataset.token) === this.app.token);
  }
}
