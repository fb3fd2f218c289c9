// Attention by hand: four tokens with a query, a key and a value of two numbers each, all of which can be changed.

import { CATEGORIES } from "../views/colours.js";
import { heat } from "../views/heat.js";
import { button, clear, h, map, segmented, svg } from "../dom.js";
import { attend, length } from "./math.js";

const TOKENS = { en: ["the", "glass", "house", "shines"], zh: ["这座", "玻璃", "房子", "发光"] };
const START = {
  queries: [[0.5, 0.5], [0.5, 2], [2, 1.5], [2.5, -0.5]],
  keys: [[-1, -0.5], [0.5, 2], [2, 0.5], [-0.5, -2]],
  values: [[0, 0], [1, 3], [4, 1], [-2, 2]],
};
const REACH = 4;
const SIDE = 280;
const STEP = 0.25;

const words = {
  query: { en: "Query of", zh: "查询词元" },
  plane: { en: "Keys as arrows, the query as a thick arrow whose tip can be moved with the arrow keys", zh: "键是细箭头，查询是粗箭头，可以用方向键移动它的尖端" },
  tip: { en: "Tip of the query of {token}: {x}, {y}", zh: "“{token}”的查询箭头尖端：{x}，{y}" },
  key: { en: "key k", zh: "键 k" },
  product: { en: "q·k", zh: "q·k" },
  weight: { en: "softmax", zh: "softmax" },
  value: { en: "value v", zh: "值 v" },
  share: { en: "weight · v", zh: "权重 · v" },
  sum: { en: "output", zh: "输出" },
  token: { en: "token", zh: "词元" },
  all: { en: "All weights: a row per query. Rows add up to 1.", zh: "全部权重：每个查询一行，每行之和为 1。" },
  again: { en: "Reset", zh: "重置" },
  said: { en: "{token} attends to {most} with {share} percent", zh: "“{token}”对“{most}”的权重为百分之 {share}" },
  number: { en: "{what} of {token}, number {n}", zh: "“{token}”的{what}，第 {n} 个数" },
};

const two = (value) => (Math.abs(value) < 0.005 ? 0 : value).toFixed(2);
const copy = (numbers) => ({ queries: numbers.queries.map((q) => [...q]), keys: numbers.keys.map((k) => [...k]), values: numbers.values.map((v) => [...v]) });

export function figure(container, app) {
  const t = (key, values) => app.t(words[key], values);
  const tokens = TOKENS[app.lang];
  let numbers = copy(START);
  let chosen = 2;

  const plane = svg("svg", { class: "plane", viewBox: `0 0 ${SIDE} ${SIDE}`, role: "group", "aria-label": t("plane") });
  const table = h("div", { class: "scroll" });
  const weights = map(t("all"), { class: "pixels weights" });
  const labels = h("div", { class: "weight-names", "aria-hidden": "true" }, tokens.map((token) => h("span", {}, token)));
  const choose = segmented(t("query"), tokens.map((token, at) => [at, token]), chosen, (at) => {
    chosen = at;
    build();
  });
  container.append(
    h("div", { class: "row" }, h("span", { class: "note" }, t("query")), choose, button(t("again"), () => {
      numbers = copy(START);
      build();
    })),
    h("div", { class: "hand" }, plane, table, h("div", { class: "all-weights" }, weights, labels, h("p", { class: "note" }, t("all")))),
  );

  const at = (value) => SIDE / 2 + (value / REACH) * (SIDE / 2);
  const place = ([x, y]) => [at(x), SIDE - at(y)];
  const bounded = (value) => Math.max(-REACH, Math.min(REACH, Math.round(value / STEP) * STEP));

  function arrow([x, y], colour, width, dashes) {
    return svg("line", { x1: SIDE / 2, y1: SIDE / 2, x2: x, y2: y, stroke: colour, "stroke-width": width, "stroke-linecap": "round", "stroke-dasharray": dashes });
  }

  // Beyond the tip, seen from the middle, and inside the drawing.
  function label(key, text, distance) {
    const far = length(key) || 1;
    const [x, y] = place(key);
    const along = [x + (key[0] / far) * distance, y - (key[1] / far) * (distance + 4) + 5];
    const anchor = key[0] / far > 0.5 ? "start" : key[0] / far < -0.5 ? "end" : "middle";
    const isTight = anchor === "start" ? along[0] > SIDE - 50 : anchor === "end" ? along[0] < 50 : false;
    return svg("text", { x: isTight ? x : along[0], y: Math.min(SIDE - 6, Math.max(14, isTight ? y - distance - 4 : along[1])), "text-anchor": isTight ? (key[0] > 0 ? "end" : "start") : anchor }, text);
  }

  function drawPlane(weightsOfQuery) {
    const isOnTip = document.activeElement?.classList.contains("tip-handle") && plane.contains(document.activeElement);
    clear(plane);
    for (let line = -REACH + 1; line < REACH; line++) {
      const style = { stroke: "var(--line)", "stroke-width": line ? 0.5 : 1.5 };
      plane.append(svg("line", { x1: at(line), x2: at(line), y1: 0, y2: SIDE, ...style }), svg("line", { y1: at(line), y2: at(line), x1: 0, x2: SIDE, ...style }));
    }
    numbers.keys.forEach((key, token) => {
      const [x, y] = place(key);
      plane.append(arrow([x, y], CATEGORIES[token], 2, null), svg("circle", { cx: x, cy: y, r: 4 + 14 * weightsOfQuery[token], fill: CATEGORIES[token] }));
      plane.append(label(key, `k ${tokens[token]}`, 10 + 14 * weightsOfQuery[token]));
    });
    const query = numbers.queries[chosen];
    const [x, y] = place(query);
    const tip = svg("circle", {
      class: "tip-handle", cx: x, cy: y, r: 10, tabindex: 0, role: "slider", "aria-label": t("tip", { token: tokens[chosen], x: two(query[0]), y: two(query[1]) }),
      "aria-valuenow": query[0], "aria-valuemin": -REACH, "aria-valuemax": REACH, "aria-valuetext": `${two(query[0])}, ${two(query[1])}`, onkeydown: moveByKey,
    });
    plane.append(arrow([x, y], "var(--ink)", 5, null), tip);
    if (isOnTip) tip.focus();
  }

  function moveByKey(event) {
    const by = { ArrowLeft: [-STEP, 0], ArrowRight: [STEP, 0], ArrowUp: [0, STEP], ArrowDown: [0, -STEP] }[event.key];
    if (!by) return;
    event.preventDefault();
    move(numbers.queries[chosen].map((value, axis) => value + by[axis]));
    const { weights: of } = attend(numbers.queries[chosen], numbers.keys, numbers.values);
    const most = of.indexOf(Math.max(...of));
    app.say(t("said", { token: tokens[chosen], most: tokens[most], share: Math.round(100 * of[most]) }));
  }

  function move(query) {
    numbers.queries[chosen] = query.map(bounded);
    update();
  }

  function dragTo(event) {
    const box = plane.getBoundingClientRect();
    const share = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    move([(2 * share[0] - 1) * REACH, (1 - 2 * share[1]) * REACH]);
  }
  plane.addEventListener("pointerdown", (event) => {
    plane.setPointerCapture(event.pointerId);
    dragTo(event);
    event.preventDefault();
  });
  plane.addEventListener("pointermove", (event) => {
    if (plane.hasPointerCapture(event.pointerId)) dragTo(event);
  });

  function input(list, what, token, axis) {
    const field = h("input", {
      type: "number", step: STEP, min: -9, max: 9, value: list[token][axis], class: "cell", "aria-label": t("number", { what, token: tokens[token], n: axis + 1 }),
      oninput: () => {
        if (!Number.isFinite(field.valueAsNumber)) return;
        list[token][axis] = Math.max(-9, Math.min(9, field.valueAsNumber));
        update();
      },
    });
    return field;
  }

  // The cells that change, by what they show.
  let cells = null;
  function build() {
    const head = [t("token"), t("key"), t("product"), "÷ √2", t("weight"), t("value"), t("share")];
    cells = { query: tokens.map(() => null), rows: [], output: h("td", { class: "number vector" }), line: h("p", { class: "mono out-line" }) };
    const query = [0, 1].map((axis) => input(numbers.queries, t("query"), chosen, axis));
    cells.query = query;
    const rows = tokens.map((token, at) => {
      const made = { product: h("td", { class: "number" }), score: h("td", { class: "number" }), weight: h("td", { class: "number share" }), share: h("td", { class: "number vector" }) };
      cells.rows.push(made);
      const name = h("th", { scope: "row" }, h("i", { class: "swatch", style: { background: CATEGORIES[at] } }), token);
      const pair = (list, what) => h("td", { class: "pair" }, [0, 1].map((axis) => input(list, what, at, axis)));
      return h("tr", {}, name, pair(numbers.keys, t("key")), made.product, made.score, made.weight, pair(numbers.values, t("value")), made.share);
    });
    clear(table);
    table.append(
      h("p", { class: "query-line" }, h("span", { class: "mono" }, `q ${tokens[chosen]} = (`), query[0], ", ", query[1], h("span", { class: "mono" }, ")")),
      h("table", { class: "by-hand" },
        h("thead", {}, h("tr", {}, head.map((text) => h("th", { scope: "col" }, text)))),
        h("tbody", {}, rows, h("tr", { class: "total" }, h("th", { scope: "row", colspan: 6 }, t("sum")), cells.output))),
      cells.line);
    update();
  }

  function update() {
    const query = numbers.queries[chosen];
    const { products, scores, weights: of, output } = attend(query, numbers.keys, numbers.values);
    cells.query.forEach((field, axis) => {
      if (document.activeElement !== field) field.value = query[axis];
    });
    cells.rows.forEach((row, at) => {
      row.product.textContent = two(products[at]);
      row.score.textContent = two(scores[at]);
      row.weight.textContent = `${(100 * of[at]).toFixed(1)} %`;
      row.weight.style.setProperty("--share", of[at]);
      row.share.textContent = `(${numbers.values[at].map((value) => two(of[at] * value)).join(", ")})`;
    });
    cells.output.textContent = `(${output.map(two).join(", ")})`;
    cells.line.textContent = `${of.map((weight, at) => `${two(weight)}·v${at + 1}`).join(" + ")} = (${output.map(two).join(", ")})`;
    drawPlane(of);
    const all = numbers.queries.flatMap((one) => attend(one, numbers.keys, numbers.values).weights);
    heat(weights, { values: all, rows: 4, columns: 4, low: 0, high: 1 });
    labels.dataset.chosen = chosen;
    [...labels.children].forEach((label, at) => label.classList.toggle("chosen", at === chosen));
  }
  build();
}
