// One token on its way through one layer: what comes in, what attention and the MLP add, what goes on; both can be scaled.

import { button, h, slider } from "../dom.js";
import { answerBars, latest, missing, patchGrid, pictures, sharesOf, strip } from "./kit.js";
import { length } from "./math.js";
import { common } from "./text.js";

const words = {
  grid: { en: "The token that is followed", zh: "跟踪哪个词元" },
  attention: { en: "Attention ×", zh: "注意力 ×" },
  mlp: { en: "MLP ×", zh: "MLP ×" },
  in: { en: "comes in", zh: "进来的" },
  byAttention: { en: "+ attention", zh: "+ 注意力" },
  byMlp: { en: "+ MLP", zh: "+ MLP" },
  out: { en: "goes on", zh: "出去的" },
  norm: { en: "their sum", zh: "两者之和" },
  length: { en: "length", zh: "长度" },
  answer: { en: "Answer; the marks are the unchanged model's", zh: "答案；竖线是未改动模型的结果" },
  pre: { en: "The three rows above add up to the last: this model norms what each branch reads.", zh: "上面三行相加就是最后一行：这个模型对每个分支读入的内容做归一化。" },
  post: { en: "After each sum this model norms, as the paper of 2017 did: so the last row is not just a sum, and the norm sets its length.", zh: "这个模型像 2017 年的论文那样，在每次求和之后做归一化：所以最后一行不只是各行之和，它的长度由归一化决定。" },
};
const ROWS = ["in", "byAttention", "norm", "byMlp", "out"];

export function figure(container, app, { picture: model }) {
  if (!model) return missing(container, app);
  const group = model.groups[0];
  const labels = model.labels ?? [];
  const factor = { attention: 1, mlp: 1 };
  let [input, layer, patch, grid, first] = [null, 0, 5, null, 0];
  const board = h("div", { class: "small-board" });
  const bars = answerBars(app, labels, app.t(words.answer));
  const under = h("div", { class: "stack" });
  const run = latest(under);
  const strips = Object.fromEntries(ROWS.map((name) => [name, strip(app.t(words[name]))]));
  const lengths = Object.fromEntries(ROWS.map((name) => [name, h("td", { class: "number" })]));
  const rows = Object.fromEntries(ROWS.map((name) => [name, h("tr", {}, h("th", { scope: "row" }, app.t(words[name])), h("td", {}, strips[name]), lengths[name])]));
  const note = h("p", { class: "note" });
  const table = h("table", { class: "by-hand stream" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }), h("th", { scope: "col" }), h("th", { scope: "col" }, app.t(words.length)))), h("tbody", {}, Object.values(rows)));
  const scale = (name) => slider(app.t(words[name]), { min: 0, max: 2, step: 0.1, value: 1, format: (x) => x.toFixed(1) }, (value) => {
    factor[name] = value;
    draw();
  });
  const scales = { attention: scale("attention"), mlp: scale("mlp") };
  const choose = pictures(app, model, 8, async (record) => {
    input = record;
    if (!grid) {
      grid = patchGrid(app, { ...record.grid, name: app.t(words.grid), onchoose: (at) => {
        patch = at;
        draw();
      } });
      first = record.grid.prefix;
      board.replaceChildren(grid);
      grid.choose(patch);
    }
    grid.picture(await app.seen(model, record));
    draw();
  });
  under.append(table, note);
  container.append(choose, h("div", { class: "row" },
    slider(app.t(common.layer), { min: 1, max: group.layers, step: 1, value: 1 }, (to) => {
      layer = to - 1;
      draw();
    }), scales.attention, scales.mlp, button(app.t(common.reset), () => {
      for (const name of ["attention", "mlp"]) {
        factor[name] = 1;
        scales[name].show("1.0");
        scales[name].input.value = 1;
      }
      draw();
    })), h("div", { class: "two uneven" }, board, under), bars);

  const draw = () => run(async (isNewest) => {
    if (!input || !grid) return;
    const block = group.block.replace("#", layer);
    const before = layer ? group.block.replace("#", layer - 1) : "embedding";
    const paths = [before, `${block}.attention`, `${block}.mlp`, block];
    const edits = ["attention", "mlp"].filter((name) => factor[name] !== 1).map((name) => (
      factor[name] === 0 ? { path: `${block}.${name}`, do: "zero" } : { path: `${block}.${name}`, do: "scale", factor: factor[name] }));
    const answer = { top: labels.length };
    const [edited, whole] = await Promise.all([
      app.look({ answer, values: paths.map((path) => ({ path })) }, { model, input, edits }),
      app.look({ answer }, { model, input, edits: [] }),
    ]);
    if (!isNewest()) return;
    const token = patch + first;
    const [x, byAttention, byMlp, out] = edited.values.map((array) => {
      const width = array.shape.at(-1);
      return array.data.subarray(token * width, (token + 1) * width);
    });
    const sum = x.map((value, at) => value + byAttention[at]);
    const isPre = Math.max(...out.map((value, at) => Math.abs(value - sum[at] - byMlp[at]))) < 1e-2 * Math.max(...out.map(Math.abs));
    // With post-norm, what the MLP is added to is the normed sum; of it the length is shown, whose scale all numbers share.
    const shown = { in: x, byAttention, norm: sum, byMlp, out };
    const reach = Math.max(...Object.values(shown).flatMap((values) => [...values].map(Math.abs)));
    rows.norm.hidden = isPre;
    for (const name of ROWS) {
      strips[name].show(shown[name], reach);
      lengths[name].textContent = length([...shown[name]]).toFixed(2);
    }
    note.textContent = app.t(isPre ? words.pre : words.post);
    bars.show(sharesOf(edited.answer, labels), edits.length ? sharesOf(whole.answer, labels) : null);
  });
  choose.first();
  return () => run.stop();
}
