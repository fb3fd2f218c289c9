// Attention: all heads of all layers as a grid, and one of them large: as a map, as lines between tokens, or on the picture.

import { pathOf } from "./app.js";
import { CellMap } from "./cells.js";
import { button, h, map as mapCanvas, segmented, svg, toggle, choice } from "./dom.js";
import { modality } from "./examples.js";
import { HeadGrid } from "./headgrid.js";
import { PictureMap } from "./picturemap.js";
import { readable, tokensOf } from "./tokens.js";
import { Board, paintWeights } from "./views/board.js";
import { drawLines, linesOf } from "./views/lines.js";
import { percent, quoted } from "./views/numbers.js";

export const id = "attention";
export const title = { en: "Attention", zh: "注意力" };
export const needs = "input";

// Small maps of texts have at most so many rows; the large one of a picture, too.
const SMALL = 24;
const LARGE = 256;
// Of longer texts the large map and the lines show one query at a time.
const MOST_LINES = 400;
// The window of a model of speech, and how many places its encoder has for each second.
const SECONDS = 30;
const PER_SECOND = 50;
// Names beside a map without room for all, and marks of time below it.
const MOST_NAMES = 36;
const MOST_MARKS = 5;

let page = null;

export function mount(place, app) {
  page = new Page(place, app);
  return page.draw();
}

export function unmount() {
  page?.leave();
  page = null;
}

export function update(change) {
  if (!page) return;
  if (change.has("input") || change.has("edits") || change.has("other-input") || change.has("group")) page.draw();
  else if (["layer", "head", "token"].some((name) => change.has(name))) page.choose(change);
}

// Of a list of names those that have room beside a map, each with its place from 0 to 1.
function someOf(names) {
  const step = Math.ceil(names.length / MOST_NAMES);
  return names.map((name, at) => [name, (at + 0.5) / names.length]).filter((_, at) => at % step === 0);
}

// Round seconds from 0 to the end of a window.
function marksOf(window) {
  const step = [0.1, 0.2, 0.5, 1, 2, 5].find((one) => window / one <= MOST_MARKS) ?? 10;
  return Array.from({ length: Math.floor(window / step + 1e-6) + 1 }, (_, at) => at * step);
}

class Page {
  constructor(place, app) {
    Object.assign(this, { place, app, hover: null, root: false });
    this.picture = new PictureMap(app, { onquery: (token, isKept) => this.query(token, isKept) });
    this.grid = new HeadGrid(app, { onchoose: (layer, head) => app.set({ layer, head }, { replace: true }) });
    this.how = this.isPicture ? "picture" : "lines";
    this.board = this.#makeBoard();
    this.lines = this.#makeLines();
    this.wide = this.#makeWide();
    this.says = h("p", { class: "says", "aria-live": "polite" });
    this.heading = h("h2", {});
    this.large = h("div", { class: "large" });
    this.controls = h("div", { class: "controls" });
    this.off = button("", () => this.#switch());
    this.place.append(
      h("div", { class: "head" }, this.heading, h("p", { class: "lede" }, app.t("attention-lede", { what: app.t(`point-at-${modality(app.model)}`) }))),
      h("div", { class: "attention-desk" },
        h("div", { class: "attention-large" }, this.controls, this.says, this.large),
        h("div", { class: "attention-all" }, h("h3", {}, app.t("all-heads")), h("p", { class: "hint" }, app.t(this.isPicture ? "all-heads-picture" : "all-heads-text")), this.grid.element)));
    this.#drawControls();
  }

  leave() { this.gone = true; }

  get isPicture() { return Boolean(this.app.input?.grid) && (this.app.group?.name ?? "self") !== "cross" && this.app.group?.name !== "decoder"; }
  // The frames of a sound are too many for names.
  get isLong() { return this.app.model.takes === "audio" && this.app.group.name !== "decoder"; }
  get path() { return `${pathOf(this.app.group.attention, this.app.layer)}`; }

  #drawControls() {
    const { app } = this;
    const hows = this.isPicture ? [["picture", app.t("on-picture")], ["map", app.t("as-map")]] : [["lines", app.t("as-lines")], ["map", app.t("as-map")]];
    const groups = app.model.groups ?? [];
    this.hows = segmented(app.t("shown-as"), hows, this.how, (how) => {
      this.how = how;
      this.drawLarge();
    });
    this.controls.replaceChildren(
      groups.length > 1 ? choice(app.t("which"), groups.map(({ name }) => [name, app.t(`group-${name}`)]), app.group.name, (group) => app.set({ group, layer: null, head: null })) : "",
      this.hows,
      toggle(app.t("root"), this.root, (root) => {
        this.root = root;
        this.draw();
      }),
      this.off);
  }

  async draw() {
    const { app } = this;
    if (!app.group) {
      this.large.replaceChildren(h("p", { class: "note" }, app.t("no-attention")));
      return;
    }
    await Promise.all([this.#drawGrid(), this.drawLarge()]);
  }

  async choose(change) {
    this.grid.mark();
    await Promise.all([this.isPicture && change.has("token") ? this.#drawGrid() : null, this.drawLarge()]);
  }

  get token() { return this.hover ?? this.app.token; }

  async #drawGrid() {
    const { app } = this;
    const group = app.group.name;
    const want = this.isPicture ? { attention_row: { group, query: this.token } } : { attention: { group, fit: SMALL } };
    const got = await app.look(want, { slot: "grid" });
    if (!got || this.gone) return;
    const array = Object.values(got.arrays).find(({ from }) => from === (this.isPicture ? "attention_row" : "attention"));
    if (!array) return;
    if (this.isPicture) this.#drawRows(array);
    else this.grid.draw({ layers: array.shape[0], heads: array.shape[1], rows: array.shape[2], columns: array.shape[3], values: array.data, root: this.root });
  }

  // Of pictures: where one token looks, in every head.
  #drawRows({ shape: [layers, heads, keys], data }) {
    const { prefix, rows, cols } = this.app.input.grid;
    const values = new Float32Array(layers * heads * rows * cols);
    for (let one = 0; one < layers * heads; one++) values.set(data.subarray(one * keys + prefix, (one + 1) * keys), one * rows * cols);
    this.rows = { keys, data, heads };
    this.grid.draw({ layers, heads, rows, columns: cols, values, root: this.root });
    if (this.how === "picture") this.#drawPicture();
  }

  #drawPicture() {
    const { app, rows } = this;
    const at = app.layer * rows.heads + app.head;
    this.picture.draw({ weights: rows.data.subarray(at * rows.keys, (at + 1) * rows.keys), token: this.token, root: this.root });
    this.says.textContent = this.picture.says(this.where());
  }

  where() { return this.app.t("layer-head", { layer: this.app.layer, head: this.app.head }); }

  async drawLarge() {
    const { app } = this;
    this.heading.textContent = this.where();
    const path = `${this.path}.heads.${app.head}`;
    this.off.textContent = app.t(app.edited(path) ? "switch-on" : "switch-off");
    this.off.setAttribute("aria-pressed", String(Boolean(app.edited(path))));
    if (this.how === "picture") {
      if (!this.picture.element.isConnected) this.large.replaceChildren(this.picture.element);
      await this.picture.open();
      if (this.rows && !this.gone) this.#drawPicture();
      return;
    }
    const isLong = this.isLong;
    // Lines go between tokens of one text.
    this.hows.hidden = isLong || app.group.name === "cross";
    const shown = this.isPicture || isLong ? await this.#fitted() : await this.#exact();
    if (!shown || this.gone || this.how === "picture") return;
    this.shown = shown;
    const part = isLong ? this.wide : this.how === "lines" && shown.rows.length <= MOST_LINES && shown.rows.length === shown.columns.length ? this.lines : this.board;
    if (!part.element.isConnected) this.large.replaceChildren(part.element);
    part.show(shown);
  }

  async #exact() {
    const { app } = this;
    const group = app.group.name;
    const got = await app.look({ values: [{ path: `${this.path}.weights`, head: app.head }] }, { slot: "large" });
    const array = got?.values[0];
    if (!array) return null;
    const [rows, columns] = array.shape.slice(-2);
    const names = (count, of) => Array.from({ length: count }, (_, at) => readable(tokensOf(app.input, of)[at]?.text ?? String(at)));
    const values = Float32Array.from(array.data, (weight, at) => ((group === "self" && app.model.gives === "next_token") || group === "decoder") && at % columns > Math.floor(at / columns) ? NaN : weight);
    return { rows: names(rows, group === "encoder" ? "encoder" : "decoder"), columns: names(columns, group === "cross" ? "encoder" : group), values };
  }

  async #fitted() {
    const { app } = this;
    const want = { attention: { group: app.group.name, layers: [app.layer], heads: [app.head], fit: LARGE } };
    const got = await app.look(want, { slot: "large" });
    const array = got && Object.values(got.arrays).find(({ from }) => from === "attention");
    if (!array) return null;
    const [rows, columns] = array.shape.slice(-2);
    const high = array.maximum?.[0] ?? array.high ?? 1;
    const values = Float32Array.from(array.data, (byte) => (byte / 255) * high);
    if (this.isLong) {
      // A shorter window than the usual one is there place by place.
      const window = columns < LARGE ? columns / PER_SECOND : SECONDS;
      const second = (s) => app.t("second-of", { s });
      const seconds = (count) => Array.from({ length: count }, (_, at) => second(((window * (at + 0.5)) / count).toFixed(window < SECONDS ? 2 : 1)));
      const tokens = (count) => Array.from({ length: count }, (_, at) => readable(app.input.tokens[Math.floor((at * app.input.tokens.length) / count)]?.text ?? String(at)));
      const marks = marksOf(window).map((s) => [second(Number(s.toFixed(1))), s / window]);
      const names = app.group.name === "cross" ? tokens(rows) : seconds(rows);
      return { rows: names, columns: seconds(columns), values, down: app.group.name === "cross" ? someOf(names) : marks, across: marks };
    }
    const name = (count) => Array.from({ length: count }, (_, at) => (count === app.tokenCount ? this.picture.nameOf(at) : String(Math.round((at * app.tokenCount) / count))));
    return { rows: name(rows), columns: name(columns), values };
  }

  query(token, isKept) {
    if (isKept) {
      this.hover = null;
      this.app.set({ token }, { replace: true });
    } else if (this.hover !== token) {
      this.hover = token;
      this.#drawGrid();
    }
  }

  #switch() {
    const path = `${this.path}.heads.${this.app.head}`;
    this.app.edit(path, this.app.edited(path) ? null : { do: "zero" });
  }

  #makeBoard() {
    const { app } = this;
    const parts = { map: mapCanvas(app.t("attention-map"), { tabindex: 0, class: "pixels board-map" }), marker: h("div", { class: "marker", hidden: true }), down: h("div", { class: "down", "aria-hidden": "true" }), across: h("div", { class: "across", "aria-hidden": "true" }) };
    const board = new Board(parts, (cell) => {
      if (!this.says || !board.shown) return;
      this.says.textContent = cell ? app.t("cell-says", { row: quoted(board.shown.rows[cell[0]]), column: quoted(board.shown.columns[cell[1]]), weight: Number.isNaN(cell[2]) ? app.t("masked") : percent(cell[2]) }) : app.t("point-at-cell");
    });
    const element = h("div", { class: "board" }, h("div", { class: "corner" }), parts.across, parts.down, h("div", { class: "stage" }, parts.map, parts.marker));
    return { element, show: (shown) => {
      element.style.setProperty("--rows", shown.rows.length);
      element.style.setProperty("--columns", shown.columns.length);
      board.show(shown, this.root);
    } };
  }

  // A map of many cells, with names of some rows, and marks of time: what is pointed at is said.
  #makeWide() {
    const { app } = this;
    const canvas = mapCanvas(app.t("attention-map"), {});
    const cells = new CellMap(canvas, (row, column) => {
      const { rows, columns, values } = part.shown;
      this.says.textContent = app.t("cell-says", { row: quoted(rows[row]), column: quoted(columns[column]), weight: percent(values[row * columns.length + column]) });
    });
    const [down, across] = ["down", "across"].map((side) => h("div", { class: `marks ${side}`, "aria-hidden": "true" }));
    const part = { element: h("div", { class: "wide-map" }, down, cells.element, across), shown: null, show: (shown) => {
      part.shown = shown;
      for (const [place, marks] of [[down, shown.down], [across, shown.across]]) place.replaceChildren(...marks.map(([text, share]) => h("span", { style: { "--at": share } }, text)));
      cells.size(shown.rows.length, shown.columns.length);
      paintWeights(canvas, shown, this.root);
      this.says.textContent = app.t("point-at-cell");
    } };
    return part;
  }

  // ---- Two columns of tokens and the lines between them.

  #makeLines() {
    const drawing = svg("svg", { viewBox: "0 0 100 1", preserveAspectRatio: "none", "aria-hidden": "true" });
    const [from, to] = ["from", "to"].map((side) => h("div", { class: `column ${side}`, role: "group", "aria-label": this.app.t(`column-${side}`) }));
    const element = h("div", { class: "between" }, from, drawing, to);
    const show = (shown) => {
      element.style.setProperty("--rows", shown.rows.length);
      drawing.setAttribute("viewBox", `0 0 100 ${shown.rows.length}`);
      this.#fillColumns({ from, to }, shown);
      this.#light({ from, to, drawing }, shown, "from", this.app.token);
    };
    this.between = { from, to, drawing };
    return { element, show };
  }

  #fillColumns(columns, shown) {
    for (const [side, names] of [["from", shown.rows], ["to", shown.columns]]) {
      const there = [...columns[side].children];
      if (there.length === names.length && there.every((node, at) => node.textContent === names[at])) continue;
      columns[side].replaceChildren(...names.map((name, at) => {
        const node = button(name, () => this.app.set({ token: at }, { replace: true }), { class: "node", dataset: { side, at } });
        node.addEventListener("pointerenter", (event) => { if (event.pointerType === "mouse") this.#light(this.between, this.shown, side, at); });
        node.addEventListener("pointerleave", () => this.#light(this.between, this.shown, "from", this.app.token));
        node.addEventListener("focus", () => this.#light(this.between, this.shown, side, at));
        node.addEventListener("keydown", (event) => {
          const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
          const other = { ArrowLeft: "from", ArrowRight: "to" }[event.key];
          const next = other ? columns[other].children[at] : columns[side].children[at + step];
          if ((!step && !other) || !next) return;
          event.preventDefault();
          next.focus();
        });
        return node;
      }));
    }
  }

  #light({ from, to, drawing }, shown, side, token) {
    if (!shown) return;
    const count = shown.rows.length;
    const values = shown.values;
    const all = linesOf([[0, values]], count, null, null);
    const own = linesOf([[0, values]], count, side, token);
    drawLines(drawing, [...(count <= 64 ? all.map(([a, b, weight]) => [a, b, 0.12 * weight, "rest"]) : []), ...own.map(([a, b, weight]) => [a, b, Math.sqrt(weight), "own"])], (group) => (group === "own" ? "var(--accent)" : "var(--soft)"), (group, weight) => (group === "own" ? 1 + 5 * weight * weight : 1));
    const weightOf = (at) => values[side === "from" ? token * count + at : at * count + token] || 0;
    for (const [name, column] of [["from", from], ["to", to]]) {
      [...column.children].forEach((node, at) => {
        node.style.setProperty("--share", name === side ? "0" : Math.sqrt(weightOf(at)).toFixed(3));
        node.classList.toggle("lit", name === side && at === token);
        node.setAttribute("aria-pressed", String(name === "from" && at === this.app.token));
        node.tabIndex = name === "from" ? (at === this.app.token ? 0 : -1) : at === 0 ? 0 : -1;
      });
    }
    const order = Array.from({ length: count }, (_, at) => at).sort((a, b) => weightOf(b) - weightOf(a)).slice(0, 4);
    const list = order.map((at) => `${quoted((side === "from" ? shown.columns : shown.rows)[at])} ${percent(weightOf(at))}`).join(", ");
    this.says.textContent = this.app.t(side === "from" ? "attends-to" : "attended-by", { token: quoted(shown.rows[token] ?? ""), list });
  }
}
