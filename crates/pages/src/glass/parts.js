// Which parts speak for the answer, and reaching in: every head, MLP and layer can be switched off, scaled, or taken from another run.

import { pathOf } from "./app.js";
import { choice, h, legend, segmented } from "./dom.js";
import { OtherInput } from "./other.js";
import { readable } from "./tokens.js";
import { DIVERGING, SEQUENTIAL, textOn } from "./views/colours.js";
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
  if (["input", "token", "other-input", "edits", "group"].some((name) => change.has(name))) page.renew(change);
}

// The group of layers that holds a path: `decoder.0.mlp` is of the decoder, and not of its attention to the encoder.
function groupOf(path, groups) {
  const begins = (pattern) => new RegExp(`^${pattern.replaceAll(".", "\\.").replace("#", "\\d+")}(\\.|$)`).test(path);
  return groups.find(({ attention }) => begins(attention)) ?? groups.find(({ name, block }) => name !== "cross" && begins(block)) ?? null;
}

class Parts {
  constructor(place, app) {
    Object.assign(this, { place, app, turn: 0, act: "zero" });
    const can = (name) => app.model.can.includes(name);
    const groups = app.model.groups ?? [];
    const measures = [["attribution", app.t("adds")], ["effects", app.t("without-it")], ["scores", app.t("induction")]].filter(([name]) => can(name));
    // Where a run takes long, as many as there are parts are begun when they are asked for.
    this.isSlow = can("effects") && (app.model.takes === "audio" || (app.model.gives === "vector" && app.model.takes !== "text"));
    if (this.isSlow) measures.unshift(["none", app.t("nothing")]);
    this.measure = measures[0]?.[0] ?? "none";
    this.measures = measures.length > 1 ? segmented(app.t("measure"), measures, this.measure, (measure) => {
      this.measure = measure;
      this.draw();
    }) : null;
    // A change in a group that is not shown would not be seen.
    const changed = app.state.group ? null : app.state.edits.map(({ path }) => groupOf(path, groups)).find(Boolean);
    if (changed && changed !== app.group) app.set({ group: changed.name, layer: null, head: null }, { replace: true });
    this.grid = h("div", { class: "parts-grid", role: "grid", "aria-label": app.t("parts-grid") });
    this.lede = h("p", { class: "lede" });
    this.says = h("p", { class: "says number", "aria-live": "polite" });
    this.scale = h("div", {});
    this.note = h("p", { class: "note" });
    this.list = h("div", { class: "parts-list" });
    this.other = new OtherInput(app);
    this.other.element.hidden = true;
    place.append(
      h("div", { class: "head" }, h("h2", {}, app.t("parts-title")), this.lede),
      h("div", { class: "controls" },
        groups.length > 1 ? choice(app.t("which"), groups.map(({ name }) => [name, app.t(`group-${name}`)]), app.group.name, (group) => app.set({ group, layer: null, head: null })) : "",
        this.measures ?? "",
        h("span", { class: "choice" }, h("span", {}, app.t("a-click-does")), segmented(app.t("a-click"), [["zero", app.t("do-zero")], ["half", app.t("do-half")], ["from", app.t("do-from")]], this.act, (act) => {
          this.act = act;
          this.other.element.hidden = act !== "from";
        }))),
      this.other.element,
      measures.length || app.model.gives !== "answers" ? "" : h("p", { class: "note" }, app.t("no-numbers-span")),
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
      const cells = Array.from({ length: group.heads }, (_, head) => this.#cell(`${attention}.heads.${head}`, layer, head));
      if (hasMlp) cells.push(this.#cell(`${block}.mlp`, layer, group.heads));
      this.rows.push([whole, ...cells]);
      this.totals[layer] = h("span", { role: "gridcell", class: "total number" });
      return row([whole, ...cells, hasMlp ? "" : h("span", { role: "gridcell" }), this.totals[layer]], app.t("layer-n", { layer }));
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

  // What is shown of a run: a number for each part, by its measure and by what the model answers with.
  get #kind() {
    if (this.measure !== "effects") return this.measure;
    if (this.app.model.gives === "vector") return "turns";
    return this.app.model.groups.length > 1 ? "effects-text" : "effects";
  }

  // Numbers of the model as it is, whatever is changed inside.
  get #isBare() { return ["effects", "scores"].includes(this.#kind); }
  get #isOfToken() { return this.app.model.gives === "next_token" && this.measure !== "scores"; }

  // Draws what shows something else after a change. What takes long is not begun again by itself.
  renew(change) {
    const matters = ["input", "other-input", "group"].some((name) => change.has(name)) || (change.has("edits") && !this.#isBare) || (change.has("token") && this.#isOfToken);
    if (!matters || (this.measure === "none" && !change.has("group"))) return;
    if (this.isSlow && !change.has("group")) {
      this.measure = "none";
      this.measures.choose("none");
    }
    this.draw();
  }

  async draw() {
    const { app, measure } = this;
    const kind = this.#kind;
    this.lede.textContent = app.t({ attribution: "parts-lede-adds", effects: "parts-lede-without", "effects-text": "parts-lede-without", turns: "parts-lede-turns", scores: "parts-lede-scores", none: "parts-lede-bare" }[kind]);
    const turn = ++this.turn;
    if (!app.group || measure === "none") {
      this.#show(null);
      return;
    }
    const want = { "effects-text": { group: app.group.name }, turns: {} }[kind] ?? (this.#isOfToken ? { token: app.token } : {});
    this.grid.classList.toggle("waiting", measure === "effects");
    if (this.isSlow) this.note.textContent = app.t("runs-each", { n: this.cells.length });
    try {
      const got = await app.look({ [measure]: want }, { slot: "parts", edits: this.#isBare ? [] : app.state.edits });
      if (!got || turn !== this.turn || page !== this) return;
      this.#show(got[measure], got[`${measure}_note`], got[`${measure}_of`]);
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
      this.totals.forEach((total) => { total.textContent = ""; });
      this.scale.replaceChildren();
      this.list.replaceChildren();
      this.grid.classList.remove("waiting");
      this.mark();
      return;
    }
    const heads = { attribution: () => found.layers.map((layer) => layer.heads), effects: () => found.heads, scores: () => found.repeated?.induction ?? found.induction }[this.measure]();
    const mlps = { attribution: () => found.layers.map((layer) => layer.mlp), effects: () => found.mlps, scores: () => [] }[this.measure]();
    const { heads: count } = app.group;
    const valueOf = ({ layer, column }) => (column < count ? heads[layer]?.[column] : mlps[layer]) ?? null;
    const reach = Math.max(1e-9, ...this.cells.map((cell) => Math.abs(valueOf(cell) ?? 0)));
    for (const cell of this.cells) this.#paint(cell, valueOf(cell), reach);
    const kind = this.#kind;
    const named = { token: readable(of?.label ?? app.answer?.top?.[0]?.label ?? "") };
    const name = app.t({ attribution: "adds-scale", effects: "without-scale", "effects-text": "without-text-scale", turns: "turns-scale", scores: "induction-scale" }[kind], named);
    this.scale.replaceChildren(legend({ low: kind === "turns" ? "0" : short(-reach), high: `${kind === "turns" ? "" : "+"}${short(reach)}`, diverging: kind !== "turns", label: name }));
    this.totals.forEach((total, layer) => {
      const of = this.measure === "attribution" ? found.layers[layer] : null;
      total.textContent = of ? minus(([...of.heads, of.attention_bias ?? 0, of.mlp].reduce((sum, value) => sum + value, 0)).toFixed(2)) : "";
    });
    this.#drawList(found);
    this.mark();
  }

  #paint(cell, value, reach) {
    cell.value = value;
    const isSigned = this.#kind !== "turns";
    const share = Math.sign(value ?? 0) * Math.sqrt(Math.abs(value ?? 0) / reach);
    const step = 3 * Math.round(255 * (isSigned ? (share + 1) / 2 : share));
    const [red, green, blue] = (isSigned ? DIVERGING : SEQUENTIAL).subarray(step, step + 3);
    cell.button.style.backgroundColor = value === null ? "" : `rgb(${red}, ${green}, ${blue})`;
    cell.button.style.color = value === null ? "" : textOn([red, green, blue]);
    cell.text.textContent = value === null ? "" : this.cells.length > 160 ? "" : this.#written(value, isSigned ? 2 : 3);
  }

  #written(value, digits) {
    return Math.abs(value) < 0.5 * 10 ** -digits ? "0" : minus(value.toFixed(digits));
  }

  // With its sign, unless it has none.
  #signed(value, digits) {
    if (this.#kind === "turns") return short(value);
    return `${value >= 0 ? "+" : "−"}${Math.abs(value).toFixed(digits)}`;
  }

  // The strongest for and against, and what adds up to the logit.
  #drawList(found) {
    const { app } = this;
    const named = this.cells.map(({ path, value }) => ({ path, value: value ?? 0 }));
    if (this.measure === "attribution") named.push({ path: app.t("embedding"), value: found.embedding ?? 0 }, { path: app.t("biases"), value: (found.bias ?? 0) + found.layers.reduce((sum, { attention_bias: bias }) => sum + (bias ?? 0), 0) });
    const order = named.sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
    const reach = Math.abs(order[0]?.value ?? 1) || 1;
    const bar = ({ path, value }) => h("li", {}, h("span", { class: "mono" }, path.split(/(?=\.)/).flatMap((part) => [h("wbr"), part])), h("span", { class: value < 0 ? "signed against" : "signed", "aria-hidden": "true", style: { "--share": (Math.abs(value) / reach).toFixed(4) } }, h("i")), h("span", { class: "number" }, this.#signed(value, 3)));
    const rest = order.slice(LISTED).reduce((sum, { value }) => sum + value, 0);
    const sum = this.measure === "attribution" ? [h("p", { class: "sum number" }, app.t("adds-sum", { rest: minus(rest.toFixed(3)), sum: minus((found.sum ?? 0).toFixed(3)), logit: minus((found.logit ?? 0).toFixed(3)) }))] : [];
    this.list.replaceChildren(h("h3", {}, app.t("strongest")), h("ol", { class: "signed-bars" }, order.slice(0, LISTED).map(bar)), ...sum);
  }

  #say(cell) {
    const { app } = this;
    const edit = this.#editedPath(cell);
    this.says.textContent = `${cell.path}${cell.value === null ? "" : `: ${this.#signed(cell.value, 4)}`} · ${app.t(edit ? "click-back" : `click-${this.act}`)}`;
  }
}
