// What attention costs as texts grow, and commands to take along.

import { h, slider } from "../dom.js";
import { command } from "./kit.js";

const words = {
  length: { en: "Tokens", zh: "词元数" },
  what: { en: "One layer, 12 heads of 64 numbers", zh: "一层，12 个头，每头 64 个数" },
  kind: { en: "Attention", zh: "注意力" },
  products: { en: "Multipli\u00adcations", zh: "乘法次数" },
  memory: { en: "Weights in memory at once", zh: "同时占用内存的权重" },
  grows: { en: "Twice as long: work, memory", zh: "长度加倍：计算，内存" },
  full: { en: "Full, as by hand", zh: "完整，与手算相同" },
  flash: { en: "The same in tiles (FlashAttention)", zh: "分块计算，结果相同（FlashAttention）" },
  windowed: { en: "A window of 512 (Longformer, Mistral)", zh: "512 的窗口（Longformer、Mistral）" },
  linear: { en: "Random features (Performer)", zh: "随机特征（Performer）" },
  cached: { en: "One more token, with a KV cache", zh: "用 KV 缓存再写一个词元" },
  commands: { en: "Do it yourself: each of these trains, or opens, a model of your own", zh: "自己动手：下面每条命令都会训练或打开一个你自己的模型" },
};
const COMMANDS = [
  ["vitreous train", { en: "the model of this tour, in two minutes", zh: "训练本导览所用的模型，约两分钟" }],
  ["vitreous train classify-text --init BERT --data reviews/", { en: "fine-tune BERT on texts with labels", zh: "用带标签的文本微调 BERT" }],
  ["vitreous train finetune-language --init GPT2 --data book.txt", { en: "fine-tune GPT-2 on your texts", zh: "用你的文本微调 GPT-2" }],
  ["vitreous train translation --data pairs/", { en: "the encoder-decoder of 2017", zh: "2017 年的编码器-解码器" }],
  ["vitreous transcribe WHISPER speech.wav", { en: "hearing: attention over sound", zh: "听：声音上的注意力" }],
  ["vitreous predict CLIP photo.jpg --labels 'a cat,a dog'", { en: "seeing and reading at once", zh: "同时看图与读字" }],
  ["vitreous serve MODEL", { en: "this page, for your own model", zh: "用这个页面看你自己的模型" }],
];
const [HEADS, WIDTH, WINDOW, FEATURES, TILE] = [12, 64, 512, 256, 128];

function count(value) {
  const units = [[1e15, " P"], [1e12, " T"], [1e9, " G"], [1e6, " M"], [1e3, " k"]];
  const [size, unit] = units.find(([size]) => value >= size) ?? [1, ""];
  return `${(value / size).toPrecision(3)}${unit}`;
}

function bytes(value) {
  const units = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];
  const [size, unit] = units.find(([size]) => value >= size) ?? [1, "B"];
  return `${(value / size).toPrecision(3)} ${unit}`;
}

// Multiplications of QKᵀ and of the weighted sum, and bytes of f32 weights that exist at the same time.
const KINDS = [
  ["full", (n) => 2 * HEADS * n * n * WIDTH, (n) => 4 * HEADS * n * n],
  ["flash", (n) => 2 * HEADS * n * n * WIDTH, (n) => 4 * HEADS * Math.min(n, TILE) ** 2],
  ["windowed", (n) => 2 * HEADS * n * Math.min(n, WINDOW) * WIDTH, (n) => 4 * HEADS * n * Math.min(n, WINDOW)],
  ["linear", (n) => 4 * HEADS * n * FEATURES * WIDTH, () => 4 * HEADS * FEATURES * WIDTH],
  ["cached", (n) => 2 * HEADS * n * WIDTH, (n) => 4 * HEADS * n],
];

export function figure(container, app) {
  const t = (key) => app.t(words[key]);
  const cells = KINDS.map(() => ["number", "number", "number vector"].map((name) => h("td", { class: name })));
  const rows = KINDS.map(([name], at) => h("tr", {}, h("th", { scope: "row" }, t(name)), cells[at]));
  const show = (power) => {
    const n = 2 ** power;
    KINDS.forEach(([, products, memory], at) => {
      cells[at][0].textContent = count(products(n));
      cells[at][1].textContent = bytes(memory(n));
      cells[at][2].textContent = `×\u00a0${(products(2 * n) / products(n)).toPrecision(2)}, ×\u00a0${(memory(2 * n) / memory(n)).toPrecision(2)}`;
    });
  };
  const length = slider(t("length"), { min: 4, max: 20, step: 1, value: 10, format: (power) => (2 ** power).toLocaleString("en") }, show);
  container.append(
    h("div", { class: "row" }, length, h("span", { class: "note" }, t("what"))),
    h("div", { class: "scroll" }, h("table", { class: "costs" }, h("thead", {}, h("tr", {}, ["kind", "products", "memory", "grows"].map((name) => h("th", { scope: "col" }, t(name))))), h("tbody", {}, rows))),
    h("p", { class: "note" }, t("commands")),
    h("ul", { class: "commands" }, COMMANDS.map(([line, what]) => h("li", {}, command(app, line), h("span", { class: "note" }, app.t(what))))));
  show(10);
}
