// The same picture through the model as it began and as it became.

import { exampleOf, examplesOf } from "../examples.js";
import { button, h, slider } from "../dom.js";
import { heat } from "../views/heat.js";
import { percent } from "../views/numbers.js";
import { answerBars, latest, missing, pictures, sharesOf } from "./kit.js";
import { common } from "./text.js";

const words = {
  before: { en: "Before training", zh: "训练前" },
  after: { en: "After training", zh: "训练后" },
  heads: { en: "Attention of all heads of layer {layer}", zh: "第 {layer} 层所有头的注意力" },
  sort: { en: "Let both sort all ten pictures", zh: "让两个模型辨认全部十张图片" },
  right: { en: "{n} of {of} right", zh: "{of} 张中答对 {n} 张" },
  uncertain: { en: "Uncertainty: {bits} of {most} bits", zh: "不确定性：{bits} 比特（最多 {most} 比特）" },
  says: { en: "{name}: {label}, {share}", zh: "{name}：{label}，{share}" },
};

export function figure(container, app, { picture, untrained }) {
  if (!picture) return missing(container, app);
  if (!untrained) return missing(container, app, common.noUntrained);
  const group = picture.groups[0];
  const labels = picture.labels;
  let [example, layer] = [null, group.layers - 1];
  const sides = [[untrained, words.before], [picture, words.after]].map(([model, name]) => {
    const bars = answerBars(app, labels, app.t(name));
    const maps = Array.from({ length: group.heads }, () => h("canvas", { class: "pixels", width: 1, height: 1, "aria-hidden": "true" }));
    const caption = h("p", { class: "note" });
    const doubt = h("p", { class: "note" });
    const sorted = h("p", { class: "said", role: "status" });
    const list = h("ol", { class: "sorted" });
    const section = h("section", { class: "side", "aria-label": app.t(name) }, h("h3", {}, app.t(name)), bars, doubt, caption, h("div", { class: "head-row", role: "img", "aria-label": app.t(words.heads, { layer: layer + 1 }) }, maps), sorted, list);
    return { model, bars, maps, caption, doubt, sorted, list, section };
  });
  const both = h("div", { class: "two even" }, sides.map(({ section }) => section));
  const run = latest(both);
  const choose = pictures(app, picture, 5, (_, chosen) => {
    example = chosen;
    draw();
  });
  container.append(choose, h("div", { class: "row" },
    slider(app.t(common.layer), { min: 1, max: group.layers, step: 1, value: layer + 1 }, (to) => {
      layer = to - 1;
      draw();
    }), button(app.t(words.sort), sortAll)), both);

  const look = async (model, one, want) => app.look(want, { model, input: await app.give(await exampleOf(model, one.id), model), edits: [] });

  const draw = () => run(async (isNewest) => {
    if (!example) return;
    const want = { answer: { top: labels.length }, attention: { group: group.name, fit: 32 } };
    const seen = await Promise.all(sides.map(({ model }) => look(model, example, want)));
    if (!isNewest()) return;
    seen.forEach((one, at) => {
      const { bars, maps, caption, doubt } = sides[at];
      bars.show(sharesOf(one.answer, labels));
      const bits = one.answer.entropy / Math.LN2;
      doubt.textContent = app.t(words.uncertain, { bits: bits.toFixed(2), most: Math.log2(labels.length).toFixed(2) });
      caption.textContent = app.t(words.heads, { layer: layer + 1 });
      const attention = Object.values(one.arrays).find((array) => array.from === "attention" || array.type === "u8");
      const [, heads, rows, columns] = attention.shape;
      maps.forEach((canvas, head) => {
        const start = (layer * heads + head) * rows * columns;
        heat(canvas, { values: attention.data.subarray(start, start + rows * columns), rows, columns, low: 0, high: 255 });
      });
    });
  });

  async function sortAll() {
    const examples = examplesOf(picture).filter((one) => labels.includes(one.name));
    for (const { model, sorted, list } of sides) {
      const answers = await Promise.all(examples.map((one) => look(model, one, { answer: { top: 1 } })));
      const best = answers.map(({ answer }) => answer.top[0]);
      const right = best.filter(({ label }, at) => label === examples[at].name).length;
      sorted.textContent = app.t(words.right, { n: right, of: examples.length });
      list.replaceChildren(...best.map(({ label, score }, at) => h("li", { class: label === examples[at].name ? "right" : "wrong" },
        `${label === examples[at].name ? "✓" : "✗"} ${app.t(words.says, { name: examples[at].name, label, share: percent(score) })}`)));
    }
  }
  choose.first();
  return () => run.stop();
}
