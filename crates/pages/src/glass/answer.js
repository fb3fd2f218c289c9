// The answer and how sure the model is of it; where something was changed, before and after.

import { Bars } from "./chart.js";
import { h, map } from "./dom.js";
import { readable } from "./tokens.js";
import { bytesOf, textOf } from "./tour/pieces.js";
import { heat } from "./views/heat.js";
import { percent, scaleOf, short } from "./views/numbers.js";

const TOP = 6;
// What a picture is compared with by a model of pictures and texts, until something else is said.
export const LABELS = "a house, a tree, a boot, a shirt, a ball";
const MOST_LABELS = 32;

// Whether the answer is a text that is written token by token.
const writes = (model) => ["sequence", "speech"].includes(model?.gives);

// Whether the answer is one of several outcomes.
const hasOutcomes = (model) => ["classes", "next_token", "masked", "answers"].includes(model?.gives) || model?.takes === "image_text";

export class Answer {
  #app;
  #place;
  #parts = null;
  #gives = null;
  #turn = 0;

  constructor(app, place) {
    [this.#app, this.#place] = [app, place];
  }

  update(change) {
    const app = this.#app;
    if (change.has("model") || change.has("lang") || this.#gives !== (app.model?.gives ?? null)) this.#build();
    if (["input", "edits", "other-input", "token", "lang", "pair"].some((name) => change.has(name))) this.#ask();
  }

  #build() {
    const app = this.#app;
    this.#gives = app.model?.gives ?? null;
    this.#place.setAttribute("aria-label", app.t("answer"));
    const isRead = app.model?.gives === "next_token";
    const bars = new Bars({ rows: hasOutcomes(app.model) ? TOP : 0, label: app.t("most-likely"), onchoose: isRead ? (item) => this.#append(item) : null });
    this.#parts = {
      kicker: h("p", { class: "kicker" }, app.model ? app.t(`gives-${app.model.takes === "image_text" ? "classes" : app.model.gives}`) : ""),
      before: h("p", { class: "before-line" }),
      label: h("p", { class: "headline" }),
      score: h("p", { class: "score number" }),
      doubt: h("p", { class: "doubt" }),
      gauge: h("span", { class: "gauge", "aria-hidden": "true" }, h("i")),
      bars,
      more: h("div", { class: "more" }),
      time: h("p", { class: "hint number time", title: app.t("took-hint") }),
    };
    const { kicker, before, label, score, doubt, gauge, more, time } = this.#parts;
    this.#place.replaceChildren(kicker, h("div", { class: "big" }, before, label, score), gauge, doubt, bars.element, more, time);
    this.#place.classList.toggle("choosable", isRead);
  }

  // The next token is appended to the text: so one writes on with the model.
  #append({ label }) {
    const app = this.#app;
    const { text } = app.input?.what ?? {};
    if (text !== undefined) app.set({ text: text + textOf(bytesOf(label)), example: null, token: null });
  }

  async #ask() {
    const app = this.#app;
    if (!app.input || !app.model) return;
    const turn = ++this.#turn;
    const labels = app.model.takes === "image_text" ? (app.state.pair ?? LABELS).split(/[,\n]/).map((label) => label.trim()).filter(Boolean).slice(0, MOST_LABELS) : [];
    const want = { answer: { top: TOP, ...(labels.length && { labels }), ...(app.model.gives === "next_token" && app.state.token !== null && { token: app.token }), ...(app.model.gives === "next_token" && { tokens: true }) } };
    const [input, base, isChanged] = [app.input, app.base, app.isChanged];
    try {
      const [now, before] = await Promise.all([
        app.look(want, { input, slot: "answer" }),
        isChanged ? app.look(want, { input: base, edits: [], slot: "answer-before" }) : null,
      ]);
      if (!now || turn < this.#turn - 1) return;
      // What was written anew before stays until it is written once more.
      const isWriting = writes(app.model) && app.state.edits.length > 0;
      if (isWriting) now.answer.rewritten ??= app.answer?.rewritten;
      [app.answer, app.answerBefore, app.command] = [now.answer, before?.answer ?? null, now.header.command];
      this.#show(now, before);
      app.tell(["answer"]);
      if (isWriting) await this.#write(turn, now, before);
    } catch (error) {
      if (turn === this.#turn) this.#parts.doubt.textContent = error.message;
    }
  }

  // The text as the model writes it with the edits, and without them: both token by token, the likeliest each time.
  async #write(turn, now, before) {
    const app = this.#app;
    const want = { answer: { top: 1, write: true } };
    const [edited, plain] = await Promise.all([app.look(want, { slot: "written" }), app.look(want, { input: app.base, edits: [], slot: "written-before" })]);
    if (!edited || !plain || turn !== this.#turn) return;
    now.answer.rewritten = edited.answer.rewritten;
    if (before) before.answer.rewritten = plain.answer.rewritten;
    this.#show(now, before);
    app.tell(["answer"]);
  }

  #show(now, before) {
    const app = this.#app;
    const { label, score, before: was, doubt, gauge, bars, more, time } = this.#parts;
    const { answer } = now;
    const best = headline(app, answer);
    label.textContent = best.text;
    label.classList.toggle("long", best.text.length > 26);
    score.textContent = best.score === null ? "" : percent(best.score);
    const old = before?.answer && headline(app, before.answer);
    was.textContent = old ? app.t("was", { text: old.text, score: old.score === null ? "" : percent(old.score) }) : "";
    this.#place.classList.toggle("changed", Boolean(old));
    this.#place.classList.toggle("other", Boolean(old) && old.text !== best.text);
    const entropy = answer.entropy ?? null;
    gauge.hidden = entropy === null;
    if (entropy !== null) gauge.style.setProperty("--share", (entropy / Math.log(Math.max(2, answer.of ?? 2))).toFixed(4));
    doubt.textContent = entropy === null ? "" : app.t("doubt", { bits: (entropy / Math.LN2).toFixed(2), choices: Math.exp(entropy).toFixed(Math.exp(entropy) < 10 ? 1 : 0), of: (answer.of ?? 0).toLocaleString(app.lang) });
    bars.show(rowsOf(answer, before?.answer));
    more.replaceChildren(...this.#more(now, before));
    time.textContent = app.t("took", { ms: now.header.milliseconds?.toFixed?.(now.header.milliseconds < 10 ? 1 : 0) ?? "?" });
    app.say(`${app.t("answer")}: ${best.text} ${best.score === null ? "" : percent(best.score)}${old ? `; ${was.textContent}` : ""}`);
  }

  // What is no list of outcomes.
  #more({ answer, arrays }, before) {
    const app = this.#app;
    const parts = [];
    if (answer.masks) {
      for (const [at, mask] of answer.masks.entries()) {
        if (at === 0) continue;
        parts.push(h("p", { class: "line" }, app.t("mask-n", { n: at + 1 }), " ", mask.top.slice(0, 3).map(({ label, score }) => `${readable(label)} ${percent(score)}`).join(", ")));
      }
    }
    // A written text: the less sure, the darker.
    if (answer.tokens) parts.push(h("p", { class: "hint" }, app.t(answer.rewritten ? "text-before" : "darker-unsure")));
    if (answer.tokens) parts.push(h("div", { class: "written" }, answer.tokens.map(({ text, probability }) => h("span", {
      class: "word", title: percent(probability ?? 0), style: { "--share": (1 - (probability ?? 1)).toFixed(3) },
    }, readable(text ?? "")))));
    if (answer.token_classes) parts.push(h("div", { class: "written" }, answer.token_classes.map((of, at) => {
      const [{ label, score } = {}] = of?.top ?? [];
      return h("span", { class: "word", title: percent(score ?? 0) }, readable(app.input.tokens[at]?.text ?? ""), label && label !== "O" && h("small", {}, label));
    })));
    if (answer.vector && arrays.vector) parts.push(this.#vector(arrays.vector, before?.arrays.vector, answer.vector));
    return parts;
  }

  #vector({ data }, before, { width, length }) {
    const app = this.#app;
    const columns = Math.ceil(Math.sqrt(data.length * 4));
    const rows = Math.ceil(data.length / columns);
    const canvas = map(app.t("vector-map", { n: width ?? data.length }), { class: "pixels vector" });
    const values = new Float32Array(rows * columns).fill(-3.4e38);
    values.set(data);
    const [low, high] = scaleOf(data);
    heat(canvas, { values, rows, columns, low, high, diverging: true });
    const size = length ?? Math.hypot(...data);
    const same = before ? cosine(data, before.data) : null;
    return h("div", {}, canvas, h("p", { class: "line number" }, app.t("vector-says", { n: width ?? data.length, length: short(size) }), same === null ? "" : ` ${app.t("cosine-before", { value: same.toFixed(4) })}`));
  }
}

export function cosine(a, b) {
  let [dot, left, right] = [0, 0, 0];
  for (let at = 0; at < Math.min(a.length, b.length); at++) {
    dot += a[at] * b[at];
    left += a[at] * a[at];
    right += b[at] * b[at];
  }
  return dot / Math.sqrt(left * right || 1);
}

// The most likely of all, whatever kind of answer it is.
export function headline(app, answer) {
  const first = answer.top?.[0] ?? answer.masks?.[0]?.top?.[0];
  const { rewritten } = answer;
  const text = rewritten ? `${rewritten.text}${rewritten.ended ? "" : " …"}` : answer.text;
  if (text !== undefined && text !== null) return { text: text || "∅", score: answer.score ?? null };
  if (first) return { text: readable((first.label ?? String(first.index)).replace(/^[ \u0120\u2581](?=\S)/, "")), score: first.score };
  if (answer.answers?.[0]) return { text: answer.answers[0].text, score: answer.answers[0].score };
  if (answer.numbers?.[0]) return { text: answer.numbers.map(({ value }) => short(value)).join(", "), score: null };
  const marked = (answer.token_classes ?? []).flatMap((of, at) => (of?.top?.[0] && of.top[0].label !== "O" ? [`${app.input?.tokens[at]?.text ?? ""} (${of.top[0].label})`] : []));
  if (marked.length) return { text: marked.join(", "), score: null };
  if (answer.vector) return { text: app.t("vector-headline", { n: answer.vector.width }), score: null };
  return { text: "–", score: null };
}

function rowsOf(answer, before) {
  const of = (one) => one?.top ?? one?.masks?.[0]?.top ?? one?.answers?.map(({ text, score }, index) => ({ index, label: text, score })) ?? [];
  const old = new Map(of(before).map((item) => [item.index, item.score]));
  return of(answer).slice(0, TOP).map(({ index, label, score }) => {
    const known = before ? old.get(index) : undefined;
    return {
      index, label: label ?? String(index), name: readable(label ?? String(index)), share: score, text: percent(score), before: known,
      change: known === undefined ? (before ? "·" : "") : signed(100 * (score - known)),
    };
  });
}

const signed = (points) => `${points >= 0 ? "+" : "−"}${Math.abs(points).toFixed(1)}`;
