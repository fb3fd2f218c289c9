// One head of a trained model on a picture: what the patch that is pointed at collects, and the numbers behind it.

import { h, slider } from "../dom.js";
import { percent, short } from "../views/numbers.js";
import { latest, missing, patchGrid, pictures, strip } from "./kit.js";
import { common } from "./text.js";
import { softmax } from "./math.js";

const words = {
  grid: { en: "Patches of the picture; the arrow keys walk", zh: "图像块；用方向键移动" },
  query: { en: "Query of the patch", zh: "该图像块的查询" },
  key: { en: "key", zh: "键" },
  score: { en: "q·k / √d", zh: "q·k / √d" },
  weight: { en: "weight", zh: "权重" },
  patch: { en: "patch", zh: "图像块" },
  most: { en: "The patches that it looks at most", zh: "它看得最多的图像块" },
  sum: { en: "All {n} weights add up to {sum}.", zh: "全部 {n} 个权重之和为 {sum}。" },
};
const SHOWN = 5;

export function figure(container, app, { picture: model }) {
  if (!model) return missing(container, app);
  const group = model.groups[0];
  let [input, layer, head, patch, grid, first] = [null, Math.min(1, group.layers - 1), 0, 10, null, 0];
  const place = h("div", { class: "two" });
  const under = h("div", { class: "stack" });
  const board = h("div", {});
  const run = latest(under);
  const setting = (name, count, value, set) => slider(app.t(name), { min: 1, max: count, step: 1, value: value + 1 }, (number) => {
    set(number - 1);
    draw();
  });
  const choose = pictures(app, model, 1, async (record) => {
    input = record;
    const { rows, cols, prefix } = record.grid;
    if (!grid) {
      grid = patchGrid(app, { rows, cols, name: app.t(words.grid), onchoose: (at) => {
        patch = at;
        draw();
      } });
      first = prefix;
      board.replaceChildren(grid);
      grid.choose(Math.min(patch, rows * cols - 1));
    }
    grid.picture(await app.seen(model, record));
    draw();
  });
  container.append(choose, h("div", { class: "row" },
    setting(common.layer, group.layers, layer, (to) => { layer = to; }),
    setting(common.head, group.heads, head, (to) => { head = to; })), place);
  place.append(board, under);

  const draw = () => run(async (isNewest) => {
    if (!input || !grid) return;
    const at = group.attention.replace("#", layer);
    const want = { values: ["query", "key", "scores", "weights"].map((part) => ({ path: `${at}.${part}`, head })) };
    const { values } = await app.look(want, { model, input, edits: [] });
    if (!isNewest()) return;
    const [queries, keys, scores, weights] = values;
    const count = queries.shape.at(-2);
    const width = queries.shape.at(-1);
    const token = patch + first;
    const row = (array, index, columns) => array.data.subarray(index * columns, (index + 1) * columns);
    const shares = row(weights, token, count);
    grid.paint(shares.subarray(first));
    const order = [...shares.keys()].sort((a, b) => shares[b] - shares[a]).slice(0, SHOWN);
    const reach = Math.max(...row(queries, token, width).map(Math.abs), ...keys.data.map(Math.abs));
    const query = strip(app.t(words.query));
    query.show(row(queries, token, width), reach);
    const lines = order.map((other) => {
      const key = strip(`${app.t(words.key)} ${other - first + 1}`);
      key.show(row(keys, other, width), reach);
      return h("tr", {}, h("th", { scope: "row" }, other < first ? "·" : String(other - first + 1)), h("td", {}, key),
        h("td", { class: "number" }, short(scores.data[token * count + other])),
        h("td", { class: "number share", style: { "--share": shares[other] } }, percent(shares[other])));
    });
    const sum = softmax([...row(scores, token, count)]).reduce((a, b) => a + b, 0);
    under.replaceChildren(
      h("div", { class: "query-strip" }, h("span", { class: "note" }, `${app.t(words.query)} ${patch + 1}`), query),
      h("table", { class: "by-hand" }, h("caption", { class: "note" }, app.t(words.most)),
        h("thead", {}, h("tr", {}, [words.patch, words.key, words.score, words.weight].map((name) => h("th", { scope: "col" }, app.t(name))))),
        h("tbody", {}, lines)),
      h("p", { class: "note" }, app.t(words.sum, { n: count, sum: sum.toFixed(2) })));
  });
  choose.first();
  return () => run.stop();
}
