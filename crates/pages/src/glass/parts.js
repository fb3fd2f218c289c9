// Which parts speak for the answer, and reaching in: every head, MLP and layer can be switched off, scaled, or taken from another run.

import { pathOf } from "./app.js";
import { choice, h, legend, segmented } from "./dom.js";
import { OtherInput } from "./other.js";
import { readable } from "./tokens.js";
import { DIVERGING, textOn } from "./views/colours.js";
import { ARROWS } from "./views/choose.js";
import { minus, short } from "./views/numbers.js";

export const id = "parts";
export const title = { en: "Parts", zh: "部件" };
export const needs = "input";

const LISTED = 8;

let page = null;

export function mount(place, app) {
  page = new Parts(place, app);
  return page.draw();
}

export function unmount() { page = null; }

export function update(change) {
  if (!page) return;
  if (change.has("group")) page.build();
  page.mark();
  if (["input", "token", "other-input"].some((name) => change.has(name)) || (change.has("edits") && page.measure !== "none")) page.draw();
}

// Why there are no numbers of parts.
function whyNoNumbers({ gives, groups }) {
  if (groups.length > 1) return "no-numbers-stacks";
  return gives === "vector" ? "no-numbers-vector" : "no-numbers-span";
}

class Parts {
  constructor(place, app) {
    Object.assign(this, { place, app, turn: 0, act: "zero" });
    const can = (name) => app.model.can.includes(name);
    const groups = app.model.groups ?? [];
    const measures = [["attribution", app.t("adds")], ["effects", app.t("without-it")], ["scores", app.t("induction")]].filter(([name]) => can(name));
    this.measure = measures[0]?.[0] ?? "none";
    this.grid = h("div", { class: "parts-grid", role: "grid", "aria-label": app.t("parts-grid") });
    this.says = h("p", { class: "says number", "aria-live": "polite" });
    this.scale = h("div", {});
    this.note = h("p", { class: "note" });
    this.list = h("div", { class: "parts-list" });
    this.other = new OtherInput(app);
    this.other.element.hidden = true;
    place.append(
      h("div", { class: "head" }, h("h2", {}, app.t("parts-title")), h("p", { class: "lede" }, app.t(measures.length ? "parts-lede" : "parts-lede-bare"))),
      h("div", { class: "controls" },
        groups.length > 1 ? choice(app.t("which"), groups.map(({ name }) => [name, app.t(`group-${name}`)]), app.group.name, (group) => app.set({ group, layer: null, head: null })) : "",
        measures.length > 1 ? segmented(app.t("measure"), measures, this.measure, (measure) => {
          this.measure = measure;
          this.draw();
        }) : "",
        segmented(app.t("a-click"), [["zero", app.t("do-zero")], ["half", app.t("do-half")], ["from", app.t("do-from")]], this.act, (act) => {
          this.act = act;
          this.other.element.hidden = act !== "from";
        })),
      this.other.element,
      measures.length ? "" : h("p", { class: "note" }, app.t(whyNoNumbers(app.model))),
      h("div", { class: "parts-desk" }, h("div", {}, this.scale, h("div", { class: "scroll" }, this.grid), this.says, this.note), this.list));
    this.build();
  }

  // ---- The grid: one row per layer, one cell per head, one for the MLP.

  build() {
    const { app } = this;
    const group = app.group;
    if (!group) return;
    this.cells = [];
    this.totals = [];
    // What arrow keys go over: of each layer its name, its heads, its MLP.
    this.rows = [];
    const hasMlp = group.name !== "cross";
    this.grid.style.setProperty("--heads", group.heads);
    this.grid.style.setProperty("--layers", group.layers);
    const row = (inside, name) => h("div", { role: "row", "aria-label": name }, inside);
    const heading = row([h("span", { role: "columnheader", class: "corner" }, app.t("layer")), ...Array.from({ length: group.heads }, (_, head) => h("span", { role: "columnheader" }, String(head))), h("span", { role: "columnheader" }, hasMlp ? "MLP" : ""), h("span", { role: "columnheader" }, app.model.can.includes("attribution") ? "Σ" : "")], app.t("head"));
    const rows = Array.from({ length: group.layers }, (_, layer) => {
      const block = pathOf(group.block, layer);
      const attention = pathOf(group.attention, layer);
      const whole = h("button", { type: "button", role: "rowheader", class: "row-name", tabindex: -1, title: app.t("layer-off"), "aria-label": `${app.t("layer-n", { layer })}: ${app.t("layer-off")}`, onclick: () => this.#toggleLayer([attention, ...(hasMlp ? [`${block}.mlp`] : [])]), onkeydown: (event) => this.#key(event) }, String(layer));
      const cells = [...Array.from({ length: group.heads }, (_, head) => this.#cell(`${attention}.heads.${head}`, layer, head)), hasMlp ? this.#cell(`${block}.mlp`, layer, group.heads) : ""];
      this.rows.push([whole, ...cells.filter(Boolean)]);
      this.totals[layer] = h("span", { role: "gridcell", class: "total number" });
      return row([whole, ...cells, this.totals[layer]], app.t("layer-n", { layer }));
    });
    this.grid.replaceChildren(heading, ...rows);
    this.cells.forEach((cell, at) => { cell.button.tabIndex = at === 0 ? 0 : -1; });
    this.mark();
  }

  #cell(path, layer, column) {
    const text = h("span", { class: "number" });
    const cell = { path, layer, column, text, value: null, button: null };
    cell.button = h("button", { type: "button", role: "gridcell", "aria-pressed": "false", dataset: { path }, onclick: () => this.#toggle(cell), onpointerenter: () => this.#say(cell), onfocus: () => this.#say(cell), onkeydown: (event) => this.#key(event) }, text);
    this.cells.push(cell);
    return cell.button;
  }

  #key(event) {
    const step = ARROWS[event.key];
    if (!step) return;
    event.preventDefault();
    const own = event.currentTarget;
    const row = this.rows.findIndex((row) => row.includes(own));
    const next = this.rows[row + step[0]]?.[this.rows[row].indexOf(own) + step[1]];
    if (!next) return;
    own.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  #editOf() {
    return { zero: { do: "zero" }, half: { do: "scale", factor: 0.5 }, from: { do: "from" } }[this.act];
  }

  // A head is changed by its own edit, or by that of its whole attention: a click takes either back.
  #editedPath({ path }) {
    const { app } = this;
    return [path, path.split(".heads.")[0]].find((one) => app.edited(one)) ?? null;
  }

  #toggle(cell) {
    const { app } = this;
    const edited = this.#editedPath(cell);
    if (edited) app.edit(edited, null);
    else if (this.#canEdit()) app.edit(cell.path, this.#editOf());
  }

  #canEdit() {
    const isLost = this.act === "from" && !this.app.other;
    if (isLost) this.note.textContent = this.app.t("other-first");
    return !isLost;
  }

  #toggleLayer(paths) {
    const { app } = this;
    const isOff = paths.every((path) => app.edited(path));
    if (!isOff && !this.#canEdit()) return;
    const rest = app.state.edits.filter(({ path }) => !paths.includes(path));
    app.set({ edits: isOff ? rest : [...rest, ...paths.map((path) => ({ path, ...this.#editOf() }))] });
  }

  mark() {
    const { app } = this;
    for (const cell of this.cells ?? []) {
      const edit = app.edited(this.#editedPath(cell));
      cell.button.setAttribute("aria-pressed", String(Boolean(edit)));
      cell.button.dataset.do = edit?.do ?? "";
      cell.button.setAttribute("aria-label", `${cell.path}${cell.value === null ? "" : ` ${short(cell.value)}`}${edit ? `, ${app.t(`do-${edit.do}`)}` : ""}`);
    }
  }

  // ---- The numbers in it.

  async draw() {
    const { app } = this;
    if (!app.group || this.measure === "none") return;
    const turn = ++this.turn;
    const isText = app.model.gives === "next_token" && this.measure !== "scores";
    const token = isText ? { token: app.token } : {};
    this.grid.classList.toggle("waiting", this.measure === "effects");
    try {
      const got = await app.look({ [this.measure]: token }, { slot: "parts", edits: this.measure === "attribution" ? app.state.edits : [] });
      if (!got || turn !== this.turn || page !== this) return;
      this.#show(got[this.measure], got[`${this.measure}_note`], got[`${this.measure}_of`]);
    } catch (error) {
      if (turn === this.turn) this.note.textContent = error.message;
    }
    this.grid.classList.remove("waiting");
  }

  #show(found, note, of) {
    const { app } = this;
    this.note.textContent = note ?? "";
    if (!found) {
      for (const cell of this.cells) this.#paint(cell, null, 1);
      this.list.replaceChildren();
      return;
    }
    const heads = { attribution: () => found.layers.map((layer) => layer.heads), effects: () => found.heads, scores: () => found.repeated?.induction ?? found.induction }[this.measure]();
    const mlps = { attribution: () => found.layers.map((layer) => layer.mlp), effects: () => found.mlps, scores: () => [] }[this.measure]();
    const { heads: count } = app.group;
    const valueOf = ({ layer, column }) => (column < count ? heads[layer]?.[column] : mlps[layer]) ?? null;
    const reach = Math.max(1e-9, ...this.cells.map((cell) => Math.abs(valueOf(cell) ?? 0)));
    for (const cell of this.cells) this.#paint(cell, valueOf(cell), reach);
    this.scale.replaceChildren(legend({ low: short(-reach), high: `+${short(reach)}`, diverging: true, label: app.t({ attribution: "adds-scale", effects: "without-scale", scores: "induction-scale" }[this.measure], { token: readable(of?.label ?? app.answer?.top?.[0]?.label ?? "") }) }));
    this.totals.forEach((total, layer) => {
      const of = this.measure === "attribution" ? found.layers[layer] : null;
      total.textContent = of ? minus(([...of.heads, of.attention_bias ?? 0, of.mlp].reduce((sum, value) => sum + value, 0)).toFixed(2)) : "";
    });
    this.#drawList(found);
    this.mark();
  }

  #paint(cell, value, reach) {
    cell.value = value;
    const share = Math.sign(value ?? 0) * Math.sqrt(Math.abs(value ?? 0) / reach);
    const step = 3 * Math.round(255 * ((share + 1) / 2));
    const [red, green, blue] = DIVERGING.subarray(step, step + 3);
    cell.button.style.backgroundColor = value === null ? "" : `rgb(${red}, ${green}, ${blue})`;
    cell.button.style.color = value === null ? "" : textOn([red, green, blue]);
    cell.text.textContent = value === null ? "" : this.cells.length > 160 ? "" : Math.abs(value) < 0.005 ? "0" : minus(value.toFixed(2));
  }

  // The strongest for and against, and what adds up to the logit.
  #drawList(found) {
    const { app } = this;
    const named = this.cells.map(({ path, value }) => ({ path, value: value ?? 0 }));
    if (this.measure === "attribution") named.push({ path: app.t("embedding"), value: found.embedding ?? 0 }, { path: app.t("biases"), value: (found.bias ?? 0) + found.layers.reduce((sum, { attention_bias: bias }) => sum + (bias ?? 0), 0) });
    const order = named.sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
    const reach = Math.abs(order[0]?.value ?? 1) || 1;
    const bar = ({ path, value }) => h("li", {}, h("span", { class: "mono" }, path), h("span", { class: value < 0 ? "signed against" : "signed", "aria-hidden": "true", style: { "--share": (Math.abs(value) / reach).toFixed(4) } }, h("i")), h("span", { class: "number" }, `${value >= 0 ? "+" : "−"}${Math.abs(value).toFixed(3)}`));
    const rest = order.slice(LISTED).reduce((sum, { value }) => sum + value, 0);
    const sum = this.measure === "attribution" ? [h("p", { class: "sum number" }, app.t("adds-sum", { rest: minus(rest.toFixed(3)), sum: minus((found.sum ?? 0).toFixed(3)), logit: minus((found.logit ?? 0).toFixed(3)) }))] : [];
    this.list.replaceChildren(h("h3", {}, app.t("strongest")), h("ol", { class: "signed-bars" }, order.slice(0, LISTED).map(bar)), ...sum);
  }

  #say(cell) {
    const { app } = this;
    const edit = this.#editedPath(cell);
    this.says.textContent = `${cell.path}${cell.value === null ? "" : `: ${cell.value >= 0 ? "+" : "−"}${Math.abs(cell.value).toFixed(4)}`} · ${app.t(edit ? "click-back" : `click-${this.act}`)}`;
  }
}
