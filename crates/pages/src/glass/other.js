// The input beside the first: what is compared with it, or what values are taken from.

import { button, choice, h } from "./dom.js";
import { examplesOf, isFile } from "./examples.js";
import { prepare as preparePicture } from "./picture.js";
import { prepare as prepareSound } from "./sound.js";

const TYPING_MS = 80;

export class OtherInput {
  constructor(app, { withModel = false } = {}) {
    Object.assign(this, { app, withModel, timer: null });
    this.element = h("div", { class: "other", role: "group", "aria-label": app.t("other-input"), "data-takes-files": true });
    this.element.addEventListener("dragover", (event) => event.preventDefault());
    this.element.addEventListener("drop", (event) => {
      event.preventDefault();
      this.#take(event.dataTransfer.files[0]);
    });
    this.draw();
  }

  get model() { return this.app.models.find(({ name }) => name === this.app.state.other.model) ?? this.app.model; }

  #set(change) {
    this.app.set({ other: { ...this.app.state.other, ...change } }, { replace: true });
  }

  draw() {
    const { app, model } = this;
    const isText = !isFile(model);
    const parts = [];
    if (this.withModel && app.models.length > 1) {
      parts.push(choice(app.t("other-model"), app.models.filter(({ takes }) => takes === app.model.takes).map(({ name }) => [name, name]), model.name, (name) => {
        this.#set({ model: name });
        this.draw();
      }));
    }
    if (isText) {
      const area = h("textarea", { rows: 2, "aria-label": app.t("other-text"), placeholder: app.t("other-text"), spellcheck: "false", oninput: () => {
        clearTimeout(this.timer);
        this.timer = setTimeout(() => this.#set({ text: area.value, example: undefined }), TYPING_MS);
      } });
      area.value = app.state.other.text ?? "";
      parts.push(area);
      const texts = examplesOf(model).slice(0, 3);
      parts.push(h("div", { class: "texts" }, texts.map(({ name }) => button(name, () => {
        this.#set({ text: name, example: undefined });
        area.value = name;
      }, { class: "quiet" }))));
    } else {
      const file = h("input", { type: "file", accept: model.takes === "audio" ? "audio/*" : "image/*", class: "unseen", tabindex: -1, "aria-label": app.t("open-file"), onchange: () => this.#take(file.files[0]) });
      const examples = h("div", { class: "examples" });
      for (const { id, name, draw } of examplesOf(model)) {
        const canvas = h("canvas", { "aria-hidden": "true" });
        draw(canvas);
        examples.append(h("button", { type: "button", title: name, "aria-label": `${app.t("other-input")}: ${name}`, "aria-pressed": String(app.state.other.example === id), onclick: (event) => {
          for (const one of examples.children) one.setAttribute("aria-pressed", String(one === event.currentTarget));
          this.#set({ example: id, text: undefined });
        } }, canvas));
      }
      parts.push(examples, h("div", { class: "tools" }, button(app.t("open-file"), () => file.click()), file));
    }
    this.element.replaceChildren(h("p", { class: "kicker" }, app.t("other-input")), ...parts);
  }

  async #take(file) {
    if (!file) return;
    const { app, model } = this;
    try {
      const blob = model.takes === "audio" ? await prepareSound(file) : (await preparePicture(file)).blob;
      app.holdOther(blob);
    } catch (error) {
      app.say(error.message);
    }
  }
}
