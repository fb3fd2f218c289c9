// Two inputs, or two models, side by side: answers, how alike their streams are after each layer, one head's attention in both, and
// what patching single vectors does.

import { cosine, headline } from "./answer.js";
import { pathOf } from "./app.js";
import { CellMap } from "./cells.js";
import { Bars, lines } from "./chart.js";
import { h, legend, map as mapCanvas } from "./dom.js";
import { OtherInput } from "./other.js";
import { readable } from "./tokens.js";
import { heat } from "./views/heat.js";
import { percent, scaleOf } from "./views/numbers.js";

export const id = "compare";
export const title = { en: "Compare", zh: "比较" };
export const needs = "input";

const TOP = 6;
const SMALL = 32;

let page = null;

export function mount(place, app) {
  page = new Compare(place, app);
  return page.draw();
}

export function unmount() { page = null; }

export function update(change) {
  if (["input", "edits", "other-input", "layer", "head", "token"].some((name) => change.has(name))) page?.draw();
}

class Compare {
  constructor(place, app) {
    Object.assign(this, { app, place, turn: 0 });
    this.other = new OtherInput(app, { withModel: true });
    this.sides = [0, 1].map((side) => {
      const bars = new Bars({ rows: app.model.gives === "vector" ? 0 : TOP, label: app.t("most-likely") });
      const parts = { bars, label: h("p", { class: "headline" }), score: h("p", { class: "score number" }), seen: h("div", { class: "seen" }), map: mapCanvas(app.t("attention-map")), mapName: h("p", { class: "hint" }) };
      parts.element = h("article", { class: "side", "aria-label": app.t(side ? "side-b" : "side-a") }, h("p", { class: "kicker" }, app.t(side ? "side-b" : "side-a")), parts.seen, parts.label, parts.score, bars.element, parts.map, parts.mapName);
      return parts;
    });
    this.streams = h("div", { class: "chart" });
    this.patching = h("div", {});
    this.note = h("p", { class: "note", role: "status" });
    place.append(h("div", { class: "head" }, h("h2", {}, app.t("compare-title")), h("p", { class: "lede" }, app.t("compare-lede"))), this.other.element, this.note,
      h("div", { class: "sides-two" }, this.sides.map(({ element }) => element)), this.streams, this.patching);
  }

  get otherModel() { return this.other.model; }

  async draw() {
    const { app } = this;
    const turn = ++this.turn;
    // Another model alone is compared on the same input.
    const input = app.other ?? (this.otherModel !== app.model ? await app.give(app.input.what, this.otherModel).catch((error) => this.#tell(error.message)) : null);
    if (!input) this.#tell(app.t("choose-other"));
    else this.note.textContent = "";
    const both = [{ model: app.model, input: app.input, edits: app.state.edits }, input && { model: this.otherModel, input, edits: this.otherModel === app.model && !app.other ? app.state.edits : [] }];
    const answers = await Promise.all(both.map((one, side) => one && this.#side(one, side)));
    if (turn !== this.turn || page !== this) return;
    const [a, b] = answers;
    this.place.classList.toggle("one", !b);
    if (a && b) this.sides.forEach((side, at) => this.#showBars(side, answers[at], answers[1 - at]));
    else if (a) this.#showBars(this.sides[0], a, null);
    if (a && b) await Promise.all([this.#drawStreams(both, turn), this.#drawPatching(both, turn)]);
  }

  #tell(text) {
    this.note.textContent = text;
    return null;
  }

  async #side({ model, input, edits }, side) {
    const { app } = this;
    const group = model.groups?.find(({ name }) => name === app.group?.name) ?? model.groups?.[0];
    const layer = group && Math.min(app.layer, group.layers - 1);
    const head = group && Math.min(app.head, group.heads - 1);
    const isLanguage = model.gives === "next_token";
    const [answer, attention] = await Promise.all([
      app.look({ answer: { top: TOP, ...(isLanguage && app.state.token !== null && { token: Math.min(app.state.token, input.tokens.length - 1) }) } }, { model, input, edits, slot: `compare-${side}` }),
      group ? app.look({ attention: { group: group.name, layers: [layer], heads: [head], fit: SMALL } }, { model, input, edits, slot: `compare-map-${side}` }).catch(() => null) : null,
    ]);
    if (!answer) return null;
    const parts = this.sides[side];
    await this.#seen(parts, model, input);
    const array = attention && Object.values(attention.arrays).find(({ from }) => from === "attention");
    if (array) {
      const [rows, columns] = array.shape.slice(-2);
      heat(parts.map, { values: array.data, rows, columns, low: 0, high: scaleOf(array.data)[1] });
      parts.mapName.textContent = app.t("layer-head", { layer, head });
    }
    return answer.answer;
  }

  async #seen(parts, model, input) {
    if (input.grid || model.takes === "audio") {
      const address = await this.app.seen(model, input).catch(() => null);
      const image = parts.seen.querySelector("img") ?? h("img", { alt: this.app.t("given-picture") });
      if (address && image.src !== address) image.src = address;
      image.classList.toggle("pixels", (input.grid?.image[1] ?? 999) < 100);
      if (!image.isConnected) parts.seen.replaceChildren(image);
    } else parts.seen.replaceChildren(h("p", { class: "given-text" }, input.what.text ?? (input.tokens ?? []).map(({ text }) => readable(text)).join(" ")));
  }

  #showBars(parts, answer, beside) {
    const best = headline(this.app, answer);
    parts.label.textContent = best.text;
    parts.score.textContent = best.score === null ? "" : percent(best.score);
    const old = new Map((beside?.top ?? []).map(({ index, score }) => [index, score]));
    parts.bars.show((answer.top ?? []).slice(0, TOP).map(({ index, label, score }) => ({ name: readable(label ?? String(index)), share: score, text: percent(score), before: old.get(index) })));
  }

  // The cosine of the two streams after each layer, in the place that the answer is read from.
  async #drawStreams([a, b], turn) {
    const { app } = this;
    const group = a.model.groups?.[0];
    if (!group || a.model.width !== b.model.width || a.model.groups[0].layers !== b.model.groups[0].layers) {
      this.streams.replaceChildren();
      return;
    }
    const rowOf = ({ input }) => (input.grid ? 0 : Math.min(app.state.token ?? input.tokens.length - 1, input.tokens.length - 1));
    const values = (one) => Array.from({ length: group.layers }, (_, layer) => ({ path: pathOf(group.block, layer), rows: [rowOf(one), rowOf(one) + 1] }));
    const [left, right] = await Promise.all([a, b].map((one) => app.look({ values: values(one) }, one).catch(() => null)));
    if (turn !== this.turn || page !== this || !left || !right) return;
    const same = left.values.map((array, layer) => cosine(array.data, right.values[layer].data));
    const low = Math.min(0, ...same);
    this.streams.replaceChildren(h("h3", {}, app.t("streams")), h("p", { class: "hint" }, app.t("streams-hint")),
      lines({ series: [{ name: "", values: same, colour: "var(--accent)" }], low, high: 1, ticks: [[0, "0"], [0.5, "0.5"], [1, "1"]], xTicks: same.map((_, at) => [at, String(at)]).filter(([at]) => at % Math.ceil(same.length / 12) === 0), label: `${app.t("streams")}: ${same.map((value) => value.toFixed(2)).join(", ")}`, height: 180 }));
  }

  async #drawPatching([a, b], turn) {
    const { app } = this;
    const can = a.model === b.model && (a.model.can ?? []).includes("patching") && a.input.tokens?.length === b.input.tokens?.length && a.input.input !== b.input.input && a.model.gives === "next_token";
    if (!can) {
      this.patching.replaceChildren();
      return;
    }
    const got = await app.look({ patching: { other: b.input, token: app.token } }, { edits: [], slot: "patching" }).catch((error) => this.#tell(error.message));
    if (!got?.patching || turn !== this.turn || page !== this) return;
    const { patched, own, other, against } = got.patching;
    const share = patched.map((row) => row.map((value) => (other === own ? 0 : (value - own) / (other - own))));
    const [rows, columns] = [share.length, share[0].length];
    const canvas = mapCanvas(app.t("cells-of", { name: app.t("patching") }), { class: "pixels patching" });
    heat(canvas, { values: share.flat(), rows, columns, low: -1, high: 1, diverging: true });
    canvas.style.setProperty("--rows", rows);
    const says = h("p", { class: "says number patching-says", "aria-live": "polite" }, app.t("patching-hint"));
    const cells = new CellMap(canvas, (row, column) => {
      says.textContent = app.t("patching-says", { layer: row === 0 ? app.t("before-first") : app.t("after-layer", { layer: row - 1 }), token: readable(a.input.tokens[column].text), from: readable(b.input.tokens[column].text), share: `${(100 * share[row][column]).toFixed(0)} %`, against: readable(against?.label ?? "") });
    });
    cells.size(rows, columns);
    this.patching.replaceChildren(h("h3", {}, app.t("patching")), h("div", { class: "patching-names", "aria-hidden": "true", style: { "--columns": columns } }, a.input.tokens.map(({ text }, at) => h("span", { class: text === b.input.tokens[at].text ? null : "differs" }, readable(text)))), cells.element, legend({ low: "−100 %", high: "+100 %", diverging: true }), says);
  }
}
