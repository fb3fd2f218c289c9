// The whole model on a picture: the values of every block as pictures, and the classes that each layer would answer.

import { h, map, svg } from "../dom.js";
import { CATEGORIES } from "../views/colours.js";
import { heat } from "../views/heat.js";
import { percent, scaleOf } from "../views/numbers.js";
import { latest, missing, pictures } from "./kit.js";

const words = {
  place: { en: "Read after", zh: "读取位置" },
  start: { en: "embedding", zh: "嵌入" },
  block: { en: "block {n}", zh: "模块 {n}" },
  chart: { en: "Probability of the classes, read after each block", zh: "在每个模块之后读出的类别概率" },
  values: { en: "Values after {place}: a row per token", zh: "{place}之后的数值：每行一个词元" },
  now: { en: "After {place}: {answer}", zh: "在{place}之后：{answer}" },
  hint: { en: "Point at a place, or walk with the arrow keys.", zh: "指向某个位置，或用方向键移动。" },
};
const [WIDTH, HEIGHT, LEFT, BOTTOM] = [520, 220, 36, 24];
const CURVES = 4;
const DASHES = ["", "7 4", "2 3", "9 3 2 3"];

export function figure(container, app, { picture: model }) {
  if (!model) return missing(container, app);
  const group = model.groups[0];
  const count = group.layers + 1;
  const nameOf = (at) => (at ? app.t(words.block, { n: at }) : app.t(words.start));
  let [input, chosen, lens] = [null, count - 1, []];
  const places = Array.from({ length: count }, (_, at) => {
    const canvas = map(app.t(words.values, { place: nameOf(at) }), { class: "pixels" });
    const one = h("button", { type: "button", class: "place", "aria-pressed": "false", tabindex: at ? -1 : 0, onclick: () => select(at), onfocus: () => select(at), onpointerenter: (event) => event.pointerType === "mouse" && select(at), onkeydown: (event) => walk(event, at) }, canvas, h("span", {}, nameOf(at)));
    return { canvas, one };
  });
  const flow = h("div", { class: "flow-line", role: "group", "aria-label": app.t(words.place) }, places.map(({ one }) => one));
  const chart = svg("svg", { class: "lens-chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": app.t(words.chart) });
  const legend = h("div", { class: "row legend-line" });
  const said = h("p", { class: "said", role: "status" });
  const under = h("div", { class: "stack" }, flow, said, h("p", { class: "note" }, app.t(words.chart)), chart, legend);
  const run = latest(under);
  const choose = pictures(app, model, 9, (record) => {
    input = record;
    draw();
  });
  container.append(choose, under, h("p", { class: "note" }, app.t(words.hint)));

  function walk(event, at) {
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: count - 1 }[event.key];
    if (to === undefined || !places[to]) return;
    event.preventDefault();
    places[to].one.focus();
  }

  function select(at) {
    chosen = at;
    places.forEach(({ one }, place) => {
      one.setAttribute("aria-pressed", String(place === at));
      one.tabIndex = place === at ? 0 : -1;
    });
    const top = lens[at]?.top ?? [];
    said.textContent = app.t(words.now, { place: nameOf(at), answer: top.slice(0, 3).map(({ label, score }) => `${label} ${percent(score)}`).join(", ") });
    chart.querySelector(".cursor")?.setAttribute("transform", `translate(${across(at)} 0)`);
  }

  const across = (at) => LEFT + (at / Math.max(1, count - 1)) * (WIDTH - LEFT - 16);
  const up = (share) => 10 + (1 - share) * (HEIGHT - BOTTOM - 10);

  function drawChart() {
    const last = lens.at(-1).top.slice(0, CURVES).map(({ label, index }) => ({ label, index }));
    chart.replaceChildren();
    for (const share of [0, 0.25, 0.5, 0.75, 1]) {
      chart.append(svg("line", { x1: LEFT, x2: WIDTH - 16, y1: up(share), y2: up(share), stroke: "var(--line)" }), svg("text", { x: LEFT - 6, y: up(share) + 4, "text-anchor": "end" }, `${100 * share}`));
    }
    lens.forEach((_, at) => chart.append(svg("text", { x: across(at), y: HEIGHT - 6, "text-anchor": "middle" }, at ? String(at) : "0")));
    chart.append(svg("line", { class: "cursor", x1: 0, x2: 0, y1: 10, y2: HEIGHT - BOTTOM, stroke: "var(--soft)", "stroke-dasharray": "3 3" }));
    last.forEach(({ index }, curve) => {
      const points = lens.map(({ top }, at) => `${across(at).toFixed(1)},${up(top.find((one) => one.index === index)?.score ?? 0).toFixed(1)}`);
      chart.append(svg("polyline", { points: points.join(" "), fill: "none", stroke: CATEGORIES[curve], "stroke-width": 2.5, "stroke-dasharray": DASHES[curve] }));
    });
    legend.replaceChildren(...last.map(({ label }, curve) => h("span", {}, svg("svg", { width: 30, height: 10, "aria-hidden": "true" }, svg("line", { x1: 0, x2: 30, y1: 5, y2: 5, stroke: CATEGORIES[curve], "stroke-width": 3, "stroke-dasharray": DASHES[curve] })), label)));
  }

  const draw = () => run(async (isNewest) => {
    if (!input) return;
    const paths = Array.from({ length: count }, (_, at) => (at ? group.block.replace("#", at - 1) : "embedding"));
    const seen = await app.look({ lens: { token: 0, top: model.labels.length }, values: paths.map((path) => ({ path, fit: [32, 32] })) }, { model, input, edits: [] });
    if (!isNewest()) return;
    lens = seen.lens.map((place) => ({ ...place, top: place.top ?? place.tokens?.[0] ?? [] }));
    seen.values.forEach(({ data, shape }, at) => {
      const [low, high] = scaleOf(data, 98);
      heat(places[at].canvas, { values: data, rows: shape.at(-2), columns: shape.at(-1), low: Math.min(low, -high), high: Math.max(high, -low), diverging: true });
    });
    drawChart();
    select(chosen);
  });
  choose.first();
  return () => run.stop();
}
