// A stage that was opened: what goes in, what comes out, with numbers. Attention has its lecture.

import { pathOf } from "./app.js";
import { CellMap } from "./cells.js";
import { button, h, legend, map as mapCanvas } from "./dom.js";
import { Lecture } from "./lecture.js";
import { readable } from "./tokens.js";
import { heat } from "./views/heat.js";
import { minus, scaleOf, short } from "./views/numbers.js";

// A whole value of at most so many rows and columns is sent; larger ones are averaged.
const MOST = [400, 1024];
const LISTED = 16;

export function openStage(app, stage, stages, onclose) {
  const layer = layerOf(app, stage.path);
  const body = layer ? new Lecture(app, layer, stage) : new Values(app, stage, stages);
  const element = h("section", { class: "opened panel", "aria-label": stage.path },
    h("div", { class: "opened-head" }, h("h3", { class: "mono" }, stage.path), h("p", { class: "note number" }, facts(app, stage)), button("×", onclose, { class: "quiet close", "aria-label": app.t("close") })),
    body.element);
  element.addEventListener("keydown", (event) => { if (event.key === "Escape") onclose(); });
  const ready = body.draw();
  return { element, ready, update: (change) => body.draw(change) };
}

// Of an attention: its group and the number of its layer.
export function layerOf(app, path) {
  for (const group of app.model.groups ?? []) {
    for (let layer = 0; layer < group.layers; layer++) if (pathOf(group.attention, layer) === path) return { group, layer, path };
  }
  return null;
}

function facts(app, { op = "", shape, parameters, flops }) {
  const many = (count) => (count >= 1e9 ? `${(count / 1e9).toFixed(1)} G` : count >= 1e6 ? `${(count / 1e6).toFixed(1)} M` : count >= 1e3 ? `${(count / 1e3).toFixed(1)} k` : String(count));
  return [[...new Set(op.split(", "))].join(", "), shape.join(" × "), parameters ? app.t("n-parameters", { n: many(parameters) }) : null, flops ? `${many(flops)} FLOP` : null].filter(Boolean).join(" · ");
}

// The path of a stage's result. One that has a name is found by it after edits, too.
export const valueOf = ({ path, value, editable }) => (editable ? path : value ?? path);

class Values {
  constructor(app, stage, stages) {
    const known = new Map(stages.map((one) => [one.path, one]));
    const reads = [...new Set(stage.reads ?? [])].filter((path) => known.has(path)).slice(0, 2).map((path) => known.get(path));
    Object.assign(this, { app, stage, row: null, turn: 0 });
    this.sides = [...reads.map((one) => this.#side(one, app.t("before-stage"))), this.#side(stage, app.t("after-stage"))];
    this.says = h("p", { class: "says number", "aria-live": "polite" });
    this.numbers = h("div", { class: "numbers" });
    const about = aboutOf(app, stage);
    this.element = h("div", { class: "stage-values" }, about && h("p", { class: "lede" }, about),
      h("div", { class: "sides" }, this.sides.map(({ element }) => element)), this.says, this.numbers);
  }

  #side(stage, when) {
    const { path } = stage;
    const canvas = mapCanvas(this.app.t("cells-of", { name: `${when}: ${path}` }));
    const bar = h("div", {});
    const title = h("figcaption", {}, h("span", { class: "kicker" }, when), h("span", { class: "mono" }, path));
    const histogram = mapCanvas(this.app.t("histogram", { path }), { class: "histogram" });
    const cells = new CellMap(canvas, (row, column, isKept) => {
      const [rows, columns] = side.array.shape;
      this.says.textContent = this.app.t("value-at", { path, row: this.#rowName(row, rows), column, value: minus(side.array.data[row * columns + column].toPrecision(6)) });
      if (!isKept || row === this.row) return;
      this.row = row;
      this.#list();
    });
    const side = { path, value: valueOf(stage), canvas, cells, bar, histogram, element: h("figure", {}, title, h("div", { class: "matrix" }, cells.element), bar, histogram) };
    return side;
  }

  #rowName(row, rows) {
    const { app } = this;
    const token = app.input?.tokens?.[row];
    if (token && rows === app.input.tokens.length) return `${row} “${readable(token.text)}”`;
    return String(row);
  }

  async draw(change) {
    if (change && !["input", "edits", "other-input"].some((name) => change.has(name))) return;
    const turn = ++this.turn;
    const got = await this.app.look({ values: this.sides.map(({ value }) => ({ path: value, fit: MOST })) }).catch((error) => {
      this.says.textContent = error.message;
      return null;
    });
    if (!got || turn !== this.turn) return;
    this.sides.forEach((side, at) => this.#paint(side, got.values[at]));
    this.row ??= Math.min(this.app.token, (this.sides.at(-1).array?.shape.at(-2) ?? 1) - 1);
    this.#list();
  }

  #paint(side, array) {
    if (!array) return;
    const shape = array.shape.length > 1 ? array.shape : [1, array.shape[0]];
    const [rows, columns] = [shape.slice(0, -1).reduce((a, b) => a * b, 1), shape.at(-1)];
    side.array = { ...array, shape: [rows, columns] };
    side.cells.size(rows, columns);
    const [low, high] = scaleOf(array.data);
    const isSigned = low < 0;
    heat(side.canvas, { values: array.data, rows, columns, low, high, diverging: isSigned });
    const reach = Math.max(-low, high);
    side.canvas.style.setProperty("--shape", `${columns} / ${rows}`);
    side.bar.replaceChildren(legend({ low: short(isSigned ? -reach : low), high: short(isSigned ? reach : high), diverging: isSigned }));
    histogram(side.histogram, array.data, low, high);
  }

  // The first numbers of one row, before and after, as they are.
  #list() {
    const { app, row } = this;
    const rows = this.sides.filter(({ array }) => array).map(({ path, array }) => {
      const [count, columns] = array.shape;
      const at = Math.min(row, count - 1);
      const values = array.data.subarray(at * columns, (at + 1) * columns);
      const mean = values.reduce((sum, value) => sum + value, 0) / columns;
      const deviation = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / columns);
      const cells = [...values.subarray(0, LISTED)].map((value) => h("td", { class: "number" }, short(value)));
      return h("tr", {}, h("th", { class: "mono", scope: "row" }, path), h("td", { class: "number strong" }, short(mean)), h("td", { class: "number strong" }, short(deviation)), cells);
    });
    const last = this.sides.at(-1).array?.shape[0] ?? 1;
    this.numbers.replaceChildren(h("p", { class: "kicker" }, app.t("numbers-of-row", { row: this.#rowName(row, last), n: LISTED })),
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": app.t("numbers") }, h("table", { class: "values" },
        h("thead", {}, h("tr", {}, h("td", {}), h("th", { scope: "col" }, app.t("mean")), h("th", { scope: "col" }, app.t("deviation")), Array.from({ length: LISTED }, (_, at) => h("th", { class: "number", scope: "col" }, String(at))))),
        h("tbody", {}, rows))));
  }
}

// What an operation does, in one sentence.
function aboutOf(app, { op = "", path }) {
  const kinds = [[/norm/, "about-norm"], [/mlp|feed/, "about-mlp"], [/softmax/, "about-softmax"], [/gelu|relu|silu|tanh/, "about-activation"], [/sum|add/, "about-sum"], [/embed|patch|gather|lookup/, "about-embedding"], [/conv/, "about-convolution"], [/linear|matmul|head|logits/, "about-linear"]];
  const found = kinds.find(([pattern]) => pattern.test(`${path.split(".").at(-1)}`)) ?? kinds.find(([pattern]) => pattern.test(op));
  return found ? app.t(found[1]) : "";
}

// How often values are there, from the lowest to the highest.
function histogram(canvas, values, low, high) {
  const [bins, height] = [96, 28];
  const counts = new Uint32Array(bins);
  for (const value of values) if (value > -3e38) counts[Math.min(bins - 1, Math.max(0, Math.floor(((value - low) / (high - low || 1)) * bins)))]++;
  [canvas.width, canvas.height] = [2 * bins, 2 * height];
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(canvas).color;
  const most = Math.sqrt(Math.max(...counts, 1));
  counts.forEach((count, at) => {
    const tall = (Math.sqrt(count) / most) * 2 * height;
    context.fillRect(2 * at, 2 * height - tall, 1.6, tall);
  });
}
