// All heads of a model on a picture; a click switches one off, and the answer is computed without it.

import { button, h } from "../dom.js";
import { heat } from "../views/heat.js";
import { answerBars, latest, missing, pictures, sharesOf } from "./kit.js";
import { common } from "./text.js";

const words = {
  grid: { en: "Heads: a row per layer. A pressed one is switched off.", zh: "注意力头：每行一层。按下的头表示已关闭。" },
  one: { en: "Layer {layer}, head {head}", zh: "第 {layer} 层，第 {head} 头" },
  off: { en: "{n} of {of} heads are off", zh: "{of} 个头中关闭了 {n} 个" },
  rest: { en: "Switch all on", zh: "全部打开" },
  layerOff: { en: "Layer {layer}: all off", zh: "第 {layer} 层：全部关闭" },
  answer: { en: "Answer; the marks are the whole model's", zh: "答案；竖线是完整模型的结果" },
  said: { en: "{label}, {share} percent", zh: "{label}，百分之 {share}" },
};

export function figure(container, app, { picture: model }) {
  if (!model) return missing(container, app);
  const group = model.groups[0];
  const off = new Set();
  let input = null;
  const labels = model.labels ?? [];
  const bars = answerBars(app, labels, app.t(words.answer));
  const count = h("p", { class: "note", role: "status" });
  const place = h("div", { class: "stack" }, bars, count);
  const run = latest(place);
  const maps = [];
  const grid = h("div", { class: "all-heads", role: "group", "aria-label": app.t(words.grid), style: { "--heads": group.heads } });
  for (let layer = 0; layer < group.layers; layer++) {
    const name = app.t(words.layerOff, { layer: layer + 1 });
    grid.append(button(String(layer + 1), () => toggleLayer(layer), { class: "layer-name", title: name, "aria-label": name }));
    for (let head = 0; head < group.heads; head++) {
      const canvas = h("canvas", { class: "pixels", width: 1, height: 1, "aria-hidden": "true" });
      const name = app.t(words.one, { layer: layer + 1, head: head + 1 });
      const path = `${group.attention.replace("#", layer)}.heads.${head}`;
      const one = h("button", { type: "button", class: "head-map", title: name, "aria-label": name, "aria-pressed": "false", onclick: () => toggle(path) }, canvas);
      maps.push({ layer, head, path, canvas, one });
      grid.append(one);
    }
  }
  const choose = pictures(app, model, 0, (record) => {
    input = record;
    draw();
  });
  container.append(choose, h("p", { class: "note" }, app.t(words.grid)), h("div", { class: "two" }, grid, place),
    h("div", { class: "row" }, button(app.t(words.rest), () => {
      off.clear();
      draw();
    })));

  function toggle(path) {
    if (!off.delete(path)) off.add(path);
    draw();
  }

  function toggleLayer(layer) {
    const paths = maps.filter((map) => map.layer === layer).map((map) => map.path);
    const areOff = paths.every((path) => off.has(path));
    for (const path of paths) areOff ? off.delete(path) : off.add(path);
    draw();
  }

  const draw = () => run(async (isNewest) => {
    if (!input) return;
    for (const { path, one } of maps) one.setAttribute("aria-pressed", String(off.has(path)));
    const edits = [...off].sort().map((path) => ({ path, do: "zero" }));
    const answer = { top: labels.length };
    const [whole, edited] = await Promise.all([
      app.look({ answer, attention: { group: group.name, fit: 32 } }, { model, input, edits: [] }),
      app.look({ answer }, { model, input, edits }),
    ]);
    if (!isNewest()) return;
    const attention = Object.values(whole.arrays).find((array) => array.from === "attention" || array.type === "u8");
    const [, heads, rows, columns] = attention.shape;
    for (const { layer, head, canvas } of maps) {
      const start = (layer * heads + head) * rows * columns;
      heat(canvas, { values: attention.data.subarray(start, start + rows * columns), rows, columns, low: 0, high: 255, root: true });
    }
    bars.show(sharesOf(edited.answer, labels), off.size ? sharesOf(whole.answer, labels) : null);
    const { label, score } = edited.answer.top[0];
    count.textContent = `${app.t(words.off, { n: off.size, of: maps.length })}. ${app.t(words.said, { label, share: (100 * score).toFixed(1) })}`;
  });
  choose.first();
  return () => run.stop();
}
