// What the model is given: a picture, a text as it is typed, a sound.

import { LABELS } from "./answer.js";
import { button, h } from "./dom.js";
import { examplesOf, modality } from "./examples.js";
import { Painting } from "./painting.js";
import { fromCamera, prepare as preparePicture } from "./picture.js";
import { prepare as prepareSound, record } from "./sound.js";
import { chips, rewrite } from "./tokens.js";

const TYPING_MS = 60;
// Tokens have a few letters each; more than this is never read.
const LETTERS_PER_TOKEN = 12;
const MOST_LETTERS = 20000;

export class Giving {
  #app;
  #place;
  #kind = null;
  #typing = null;
  #url = null;
  #painting = null;
  #fields = {};

  constructor(app, place) {
    [this.#app, this.#place] = [app, place];
    for (const name of ["dragover", "drop"]) addEventListener(name, (event) => this.#drop(event));
    addEventListener("paste", (event) => this.#paste(event));
  }

  update(change) {
    const { takes } = this.#app.model ?? {};
    const isGiven = ["input", "text", "pair", "example", "lang"].some((name) => change.has(name));
    if (change.has("model") || change.has("lang") || this.#kind !== takes) this.#build();
    if (isGiven) this.#fill();
    if (change.has("input")) this.#painting?.follow(Boolean(this.#app.painted));
    if (change.has("token") && this.#fields.tokens) this.#fields.tokens.firstChild?.choose?.(this.#app.token);
  }

  #build() {
    const app = this.#app;
    this.#kind = app.model?.takes ?? null;
    this.#fields = {};
    this.#painting = null;
    this.#place.setAttribute("aria-label", app.t("give"));
    this.#place.replaceChildren(...({ image: () => this.#pictureFields(), image_text: () => this.#pictureFields(), audio: () => this.#soundFields() }[this.#kind] ?? (() => this.#textFields()))());
    this.#fill();
  }

  #note() {
    this.#fields.note = h("p", { class: "note", role: "status" });
    return this.#fields.note;
  }

  #tell(text) {
    if (this.#fields.note) this.#fields.note.textContent = text;
  }

  async #try(work) {
    try {
      await work();
    } catch (error) {
      this.#tell(error.name === "NotAllowedError" || error.name === "NotFoundError" ? this.#app.t("no-device") : error.message);
    }
  }

  // ---- Pictures.

  #pictureFields() {
    const app = this.#app;
    const picture = h("img", { class: "given", alt: app.t("given-picture") });
    this.#painting = new Painting(app, picture);
    const frame = h("div", { class: "frame" }, picture, this.#painting.canvas);
    const file = h("input", { type: "file", accept: "image/*", class: "unseen", "aria-label": app.t("open-file"), tabindex: -1, onchange: () => this.#take(file.files[0]) });
    const tools = h("div", { class: "tools" },
      button(app.t("open-file"), () => file.click()),
      button(app.t("camera"), () => this.#try(async () => {
        const blob = await fromCamera({ take: app.t("take"), cancel: app.t("cancel"), camera: app.t("camera") });
        if (blob) await this.#take(blob);
      })),
      this.#painting.tools, file);
    const examples = h("div", { class: "examples", role: "group", "aria-label": app.t("examples") });
    for (const { id, name, draw } of app.model ? examplesOf(app.model) : []) {
      const canvas = h("canvas", { "aria-hidden": "true" });
      draw(canvas);
      examples.append(h("button", { type: "button", title: name, "aria-label": name, dataset: { id }, onclick: () => app.pick(id) }, canvas));
    }
    Object.assign(this.#fields, { picture, examples });
    return [frame, tools, examples, ...(app.model?.takes === "image_text" ? [this.#labelField()] : []), this.#note()];
  }

  // What the picture may show, for models of pictures and texts.
  #labelField() {
    const app = this.#app;
    const field = h("textarea", { rows: 2, "aria-label": app.t("labels"), spellcheck: "false", oninput: () => {
      clearTimeout(this.#typing);
      this.#typing = setTimeout(() => app.set({ pair: field.value }, { replace: true }), 4 * TYPING_MS);
    } });
    field.value = app.state.pair ?? LABELS;
    return h("label", { class: "stack" }, h("span", { class: "hint" }, app.t("labels")), field);
  }

  // ---- Texts.

  #textFields() {
    const app = this.#app;
    const field = (name, label) => {
      const area = h("textarea", { rows: 2, "aria-label": label, placeholder: label, spellcheck: "false", autocapitalize: "off", oninput: () => this.#typed() });
      this.#fields[name] = area;
      return area;
    };
    const { takes, gives } = app.model ?? {};
    const areas = [field("text", app.t(gives === "answers" ? "question" : "text"))];
    if (takes === "pair") areas.push(field("pair", app.t(gives === "answers" ? "context" : "target")));
    const examples = h("div", { class: "texts", role: "group", "aria-label": app.t("examples") });
    for (const { id, name } of app.model ? examplesOf(app.model) : []) {
      examples.append(button(name, () => app.pick(id), { class: "quiet", dataset: { id } }));
    }
    this.#fields.tokens = h("div", { class: "given-tokens" });
    return [...areas, this.#fields.tokens, examples, this.#note()];
  }

  #typed() {
    clearTimeout(this.#typing);
    this.#typing = setTimeout(() => this.#send(), TYPING_MS);
  }

  #send() {
    const app = this.#app;
    const most = Math.min(MOST_LETTERS, LETTERS_PER_TOKEN * (app.model?.longest ?? 512));
    const { text, pair } = this.#fields;
    const cut = [text, pair].filter((field) => field && field.value.length > most);
    for (const field of cut) field.value = field.value.slice(0, most);
    this.#tell(cut.length ? app.t("cut", { most: most.toLocaleString(app.lang) }) : "");
    app.set({ text: text.value, pair: pair ? pair.value : null, example: null, token: null }, { replace: true });
  }

  // The word of a token is rewritten in the text; the text as it was stays beside it.
  #write(at, chip) {
    const app = this.#app;
    const { tokens, what } = app.input;
    const { start, end, sequence } = tokens[at];
    const name = sequence === 1 ? "pair" : "text";
    if (what[name] === undefined || !(end > start)) return;
    // Places are counted in bytes.
    const bytes = new TextEncoder().encode(what[name]);
    const cut = (from, to) => new TextDecoder().decode(bytes.slice(from, to));
    rewrite(chip, cut(start, end), app.t("rewrite"), (word) => {
      const was = name === "pair" ? "was-pair" : "was";
      const text = cut(0, start) + word + cut(end);
      app.set({ text: what.text, pair: what.pair ?? null, [name]: text, [was]: app.state[was] ?? what[name], example: null });
    });
  }

  // ---- Sound.

  #soundFields() {
    const app = this.#app;
    const file = h("input", { type: "file", accept: "audio/*", class: "unseen", "aria-label": app.t("open-file"), tabindex: -1, onchange: () => this.#take(file.files[0]) });
    const level = h("span", { class: "level", "aria-hidden": "true" });
    let stop = null;
    const recording = button(app.t("record"), () => this.#try(async () => {
      if (stop) {
        const blob = await stop();
        stop = null;
        recording.textContent = app.t("record");
        recording.classList.remove("busy");
        level.style.setProperty("--share", "0");
        app.hold(blob);
      } else {
        stop = await record((share) => level.style.setProperty("--share", share.toFixed(2)));
        recording.textContent = app.t("stop");
        recording.classList.add("busy");
      }
    }), { class: "primary" });
    const player = h("audio", { controls: true, "aria-label": app.t("given-sound") });
    const picture = h("img", { class: "spectrogram", alt: app.t("spectrogram") });
    Object.assign(this.#fields, { player, picture });
    return [h("div", { class: "tools" }, recording, level, button(app.t("open-file"), () => file.click()), file), h("p", { class: "hint" }, app.t("drop-sound")), player, picture, this.#note()];
  }

  // ---- What was given, as it is now.

  #fill() {
    const app = this.#app;
    const { input, base } = app;
    const { text, pair, tokens, examples, picture, player } = this.#fields;
    for (const [field, value] of [[text, app.state.text ?? input?.what.text], [pair, app.state.pair ?? input?.what.pair ?? input?.what.target ?? ""]]) {
      if (field && document.activeElement !== field && value !== undefined && value !== null) field.value = value;
      if (field) this.#grow(field);
    }
    if (tokens) {
      const list = input?.tokens ?? [];
      tokens.replaceChildren(...(list.length ? [chips(list, {
        label: app.t("tokens"), chosen: app.token, onchoose: (token) => app.set({ token }, { replace: true }), onwrite: (at, chip) => this.#write(at, chip),
      }), h("p", { class: "hint" }, app.t(list.some(({ start, end }) => end > start) ? "tokens-hint" : "tokens-hint-read", { n: list.length }))] : []));
    }
    for (const one of examples?.children ?? []) one.setAttribute("aria-pressed", String(one.dataset.id === (app.state.example ?? (app.state.text === null ? examplesOf(app.model)[0]?.id : ""))));
    if (!input) return;
    if (picture && player) app.seen().then((address) => { picture.src = address; }, () => {});
    if (picture && !player) this.#showPicture(base);
    if (player && input.what.blob && player.dataset.of !== input.input) {
      player.src = this.#addressOf(input.what.blob);
      player.dataset.of = input.input;
    }
  }

  #addressOf(blob) {
    if (this.#url) URL.revokeObjectURL(this.#url);
    this.#url = URL.createObjectURL(blob);
    return this.#url;
  }

  #showPicture(base) {
    const { picture } = this.#fields;
    if (!base.what.blob || picture.dataset.of === base.input) return;
    picture.dataset.of = base.input;
    picture.src = this.#addressOf(base.what.blob);
    picture.onload = () => {
      picture.classList.toggle("pixels", picture.naturalWidth < 100);
      this.#painting.begin(base);
    };
  }

  #grow(field) {
    field.style.height = "auto";
    field.style.height = `${Math.min(field.scrollHeight + 2, 260)}px`;
  }

  // ---- Drop and paste.

  #drop(event) {
    const files = [...(event.dataTransfer?.items ?? [])].filter((item) => item.kind === "file");
    if (!files.length) return;
    event.preventDefault();
    if (event.target.closest?.("[data-takes-files]")) return;
    document.body.classList.toggle("dropping", event.type === "dragover");
    if (event.type === "dragover") {
      clearTimeout(this.leaving);
      this.leaving = setTimeout(() => document.body.classList.remove("dropping"), 300);
    } else this.#take(event.dataTransfer.files[0]);
  }

  #paste(event) {
    const file = [...(event.clipboardData?.files ?? [])][0];
    if (file) {
      event.preventDefault();
      this.#take(file);
    }
  }

  #take(file) {
    if (!file) return;
    const app = this.#app;
    return this.#try(async () => {
      const kind = file.type.startsWith("audio/") || (file.type.startsWith("video/") && app.model?.takes === "audio") ? "audio" : file.type.startsWith("text/") ? "text" : "image";
      const takes = app.model && modality(app.model);
      if (kind === "text" && this.#fields.text) {
        this.#fields.text.value = await file.slice(0, MOST_LETTERS).text();
        this.#send();
        return;
      }
      if (kind !== takes) {
        this.#tell(app.t(`not-${["audio", "image"].includes(takes) ? takes : "text"}`, { name: file.name ?? "" }));
        return;
      }
      this.#tell(app.t("reading"));
      if (kind === "audio") app.hold(await prepareSound(file));
      else {
        const { blob, from, to } = await preparePicture(file);
        app.hold(blob);
        this.#tell(to && to[0] !== from[0] ? app.t("scaled", { from: from.join("×"), to: to.join("×") }) : "");
        return;
      }
      this.#tell("");
    });
  }
}

