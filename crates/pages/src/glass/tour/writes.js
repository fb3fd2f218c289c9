// The decoder that writes: a language model that is served, or one attention head made by hand, which writes by copying what followed
// the same word before.

import { button, h, segmented, slider } from "../dom.js";
import { readable } from "../tokens.js";
import { percent } from "../views/numbers.js";
import { heat } from "../views/heat.js";
import { latest, rich } from "./kit.js";
import { draw as drawFrom, softmax } from "./math.js";
import { bytesOf, isMark, textOf } from "./pieces.js";

const words = {
  writer: { en: "Who writes", zh: "由谁来写" },
  hand: { en: "One head made by hand", zh: "手工制作的一个头" },
  text: { en: "Text", zh: "文本" },
  temperature: { en: "Temperature", zh: "温度" },
  sharpness: { en: "Sharpness of the match", zh: "匹配的尖锐程度" },
  write: { en: "Write a token", zh: "写一个词元" },
  more: { en: "Write ten", zh: "写十个" },
  again: { en: "Reset", zh: "重置" },
  nextToken: { en: "The next token", zh: "下一个词元" },
  mask: { en: "Weights: a row per token, which looks back along its row. Nothing stands right of the diagonal: that is ahead.", zh: "权重：每个词元一行，沿着这一行往回看。对角线右边什么也没有：那里是未来。" },
  maskModel: { en: "One head of this model. Nothing stands right of the diagonal: that is ahead.", zh: "这个模型的一个头。对角线右边什么也没有：那里是未来。" },
  causal: { en: "Causal mask", zh: "因果掩码" },
  masked: { en: "on", zh: "开" },
  unmasked: { en: "off", zh: "关" },
  cheats: { en: "Without the mask each place simply reads the token that it should guess: {share} of its weight goes to what comes after it. In training the loss would be near 0, and nothing learned.", zh: "去掉掩码后，每个位置直接读到了它本该猜的词元：{share} 的权重给了它后面的内容。训练时损失会接近 0，却什么也没学到。" },
  how: { en: "Its query is the last word; the key of a place is the word before it; its value is the word itself. So it looks for places behind the same word, and copies what stood there. Trained language models grow such heads by themselves: induction heads.", zh: "它的查询是最后一个词；每个位置的键是前一个词，值是这个词本身。于是它会找到同一个词后面的位置，把那里的词抄过来。训练出来的语言模型会自己长出这样的头，叫作归纳头（induction head）。" },
  noModel: { en: "No language model is served here, so a head made by hand writes. `vitreous serve MODEL` with GPT-2 or SmolLM2 lets it write, too.", zh: "此服务器上没有语言模型，所以由一个手工制作的头来写。用 `vitreous serve MODEL` 启动 GPT-2 或 SmolLM2，也能让它来写。" },
  layers: { en: "Layer", zh: "层" },
  ends: { en: "The model drew `{piece}`, its mark for the end of a text: `generate` stops here. Press again and it draws anew.", zh: "模型抽到了 `{piece}`，即文本结束的标记：`generate` 会在这里停下。再按一次会重新抽取。" },
};
const START = {
  en: "the glass house stands in the wood and the glass house shines when the sun comes and the wood is dark when the",
  zh: "玻璃 房子 在 树林 里 ， 太阳 出来 ， 玻璃 房子 发光 ， 太阳 落下 ， 树林 里 很 暗 ， 玻璃",
};
const SHOWN = 8;
const MOST_WORDS = 60;

export function figure(container, app, { writer }) {
  const t = (key, values) => app.t(words[key], values);
  const stage = h("div", { class: "stack" });
  let end = null;
  const open = (who) => {
    end?.();
    stage.replaceChildren();
    end = who === "model" ? model(stage, app, t, writer) : byHand(stage, app, t);
  };
  if (writer) container.append(h("div", { class: "row" }, h("span", { class: "note" }, t("writer")), segmented(t("writer"), [["model", writer.name], ["hand", t("hand")]], "model", open)));
  else container.append(h("p", { class: "note" }, rich(t("noModel"))));
  container.append(stage);
  open(writer ? "model" : "hand");
  return () => end?.();
}

// Rows of probabilities with their words.
function guesses(list, shares) {
  list.replaceChildren(...shares.map(({ text, share, score }) => h("li", {}, h("span", { class: "bar-label mono" }, text), h("span", { class: "bar-track" }, h("i", { style: { width: `${100 * share}%` } })), h("span", { class: "number", title: score === undefined ? null : percent(score) }, percent(share)))));
}

function byHand(container, app, t) {
  const start = START[app.lang];
  let [text, temperature, sharpness, isMasked] = [start, 0.5, 4, true];
  const field = h("textarea", { rows: 3, "aria-label": t("text"), oninput: () => {
    text = field.value;
    update();
  } });
  field.value = text;
  const list = h("ul", { class: "tour-bars next", "aria-label": t("nextToken") });
  const weights = h("canvas", { class: "pixels weights", role: "img", "aria-label": t("mask"), width: 1, height: 1 });
  const note = h("p", { class: "note", role: "status" });
  container.append(field, h("div", { class: "row" },
    button(t("write"), () => write(1), { class: "primary" }), button(t("more"), () => write(10)), button(t("again"), () => {
      text = field.value = start;
      update();
    }),
    slider(t("temperature"), { min: 0, max: 2, step: 0.1, value: temperature, format: (x) => x.toFixed(1) }, (to) => {
      temperature = to;
      update();
    }),
    slider(t("sharpness"), { min: 0, max: 8, step: 0.5, value: sharpness, format: (x) => x.toFixed(1) }, (to) => {
      sharpness = to;
      update();
    }),
    h("span", { class: "note" }, t("causal")), segmented(t("causal"), [["on", t("masked")], ["off", t("unmasked")]], "on", (to) => {
      isMasked = to === "on";
      update();
    })), h("div", { class: "two" }, h("div", { class: "stack" }, h("h3", {}, t("nextToken")), list), h("div", { class: "stack" }, weights, note)), h("p", { class: "note" }, t("how")));

  const tokensOf = () => text.toLowerCase().split(/\s+/).filter(Boolean).slice(-MOST_WORDS);

  // The weights of the place `at`: it matches places whose word before is its own.
  function weightsAt(tokens, at) {
    const scores = tokens.map((_, place) => {
      if (isMasked && place > at) return -Infinity;
      return place > 0 && tokens[place - 1] === tokens[at] ? sharpness : 0;
    });
    return softmax(scores);
  }

  function next() {
    const tokens = tokensOf();
    if (!tokens.length) return [];
    const shares = new Map();
    weightsAt(tokens, tokens.length - 1).forEach((weight, at) => shares.set(tokens[at], (shares.get(tokens[at]) ?? 0) + weight));
    const all = [...shares].sort((a, b) => b[1] - a[1]);
    const heated = softmax(all.map(([, share]) => Math.log(share)), temperature);
    return all.map(([word, score], at) => ({ text: word, score, share: heated[at] }));
  }

  function write(count) {
    for (let one = 0; one < count; one++) {
      const all = next();
      if (!all.length) return;
      text = `${text.trimEnd()} ${all[drawFrom(all.map(({ share }) => share), Math.random())].text}`;
    }
    field.value = text;
    field.scrollTop = field.scrollHeight;
    app.say(text.slice(-80));
    update();
  }

  function update() {
    guesses(list, next().slice(0, SHOWN));
    const tokens = tokensOf();
    const rows = tokens.map((_, at) => weightsAt(tokens, at));
    // What may not be looked at has no colour.
    const shown = rows.map((row, at) => row.map((weight, place) => (isMasked && place > at ? -Infinity : weight)));
    heat(weights, { values: shown.flat(), rows: tokens.length, columns: tokens.length, low: 0, high: 1, root: true });
    const ahead = rows.map((row, at) => row.slice(at + 1).reduce((a, b) => a + b, 0));
    const share = ahead.reduce((a, b) => a + b, 0) / Math.max(1, rows.length);
    note.textContent = isMasked ? t("mask") : t("cheats", { share: percent(share) });
  }
  update();
  return () => {};
}

function model(container, app, t, writer) {
  const group = writer.groups[0];
  // What was written is kept as tokens: they go back to the model as they are.
  let [ids, bytes] = [null, []];
  let [text, temperature, layer, head, isWriting] = ["Once upon a time there was a glass house. In the glass", 0.7, 0, 0, false];
  const list = h("ul", { class: "tour-bars next", "aria-label": t("nextToken") });
  const weights = h("canvas", { class: "pixels weights", role: "img", "aria-label": t("maskModel"), width: 1, height: 1 });
  const under = h("div", { class: "two" }, h("div", { class: "stack" }, h("h3", {}, t("nextToken")), list), h("div", { class: "stack" }, weights, h("p", { class: "note" }, t("maskModel"))));
  const run = latest(under);
  const field = h("textarea", { rows: 3, "aria-label": t("text"), oninput: () => {
    [text, ids, bytes] = [field.value, null, []];
    draw();
  } });
  field.value = text;
  const buttons = [button(t("write"), () => write(1), { class: "primary" }), button(t("more"), () => write(10))];
  const note = h("p", { class: "note", role: "status" });
  container.append(field, h("div", { class: "row" }, buttons,
    slider(t("temperature"), { min: 0, max: 2, step: 0.1, value: temperature, format: (x) => x.toFixed(1) }, (to) => {
      temperature = to;
      draw();
    }),
    slider(t("layers"), { min: 1, max: group.layers, step: 1, value: 1 }, (to) => {
      layer = to - 1;
      draw();
    })), note, under);

  // Drawing and writing have a slot each: a picture of what stands there must not take the place of the token that is being written.
  async function next(slot) {
    const input = await app.give(ids ? { ids } : { text }, writer);
    const seen = await app.look({ answer: { top: 20 }, attention: { group: group.name, fit: 128, layers: [layer], heads: [head] } }, { model: writer, input, edits: [], slot: `tour-${slot}` });
    if (!seen) return null;
    const { top } = seen.answer;
    const heated = softmax(top.map(({ logit }) => logit), temperature);
    return { seen, input, top: top.map((one, at) => ({ id: one.index, piece: one.label, score: one.score, share: heated[at] })) };
  }

  const draw = () => run(async (isNewest) => {
    if (!text.trim()) return;
    const guessed = await next("draw");
    if (!guessed || !isNewest()) return;
    guesses(list, guessed.top.slice(0, SHOWN).map((one) => ({ ...one, text: readable(one.piece) })));
    const attention = Object.values(guessed.seen.arrays).find((array) => array.from === "attention" || array.type === "u8");
    const [rows, columns] = attention.shape.slice(-2);
    const values = Float32Array.from(attention.data.subarray(0, rows * columns), (weight, at) => (at % columns > Math.floor(at / columns) ? -Infinity : weight));
    heat(weights, { values, rows, columns, low: 0, high: 255, root: true });
  });

  async function write(count) {
    if (isWriting) return;
    isWriting = true;
    note.replaceChildren();
    try {
      for (let one = 0; one < count && container.isConnected; one++) {
        const guessed = await next("write");
        if (!guessed) break;
        const { id, piece } = guessed.top[drawFrom(guessed.top.map(({ share }) => share), Math.random())];
        if (isMark(piece)) {
          note.replaceChildren(...rich(t("ends", { piece })));
          break;
        }
        ids = [...guessed.input.tokens.map((token) => token.id), id];
        bytes.push(...bytesOf(piece, writer.byte_level));
        field.value = text + textOf(bytes);
        field.scrollTop = field.scrollHeight;
      }
      app.say(field.value.slice(-80));
      await draw();
    } catch (error) {
      app.say(error.message);
    }
    isWriting = false;
  }
  draw();
  return () => run.stop();
}
