// What is changed inside the model: every edit with its slider, the link and the command line that do the same.

import { button, h, slider } from "./dom.js";
import { examplesOf, modality } from "./examples.js";

export class Changes {
  #app;
  #place;
  #rows = new Map();

  constructor(app, place) {
    [this.#app, this.#place] = [app, place];
  }

  update(change) {
    if (["edits", "input", "model", "lang", "other-input"].some((name) => change.has(name))) this.#draw();
    else if (change.has("answer")) this.#command();
  }

  #draw() {
    const app = this.#app;
    this.#place.setAttribute("aria-label", app.t("changes"));
    const { edits } = app.state;
    const isOther = app.input && app.base && app.input.input !== app.base.input;
    if (!edits.length && !isOther) {
      this.#rows.clear();
      this.#place.replaceChildren(h("p", { class: "kicker" }, app.t("changes")), h("p", { class: "hint" }, this.#hint()));
      return;
    }
    // Rows stay while their slider is dragged.
    const known = this.#rows;
    this.#rows = new Map(edits.map((edit) => [edit.path, known.get(edit.path) ?? this.#row(edit.path)]));
    for (const edit of edits) this.#rows.get(edit.path).show(edit);
    this.command ??= h("code", { class: "command" });
    this.copyCommand = button(app.t("copy-command"), (event) => this.#copy(app.command, event.currentTarget), { class: "copy-command" });
    const list = h("ul", { class: "edits" }, [...this.#rows.values()]);
    if (isOther) list.append(h("li", { class: "edit" }, h("span", { class: "mono" }, app.t(app.painted ? "painted" : "rewritten")), button("×", () => this.#undoInput(), { class: "quiet", "aria-label": app.t("undo") })));
    this.#place.replaceChildren(h("p", { class: "kicker" }, app.t("changes")), list, h("div", { class: "tools" },
      button(app.t("undo-all"), () => { this.#undoInput(); app.set({ edits: [] }); }),
      button(app.t("copy-link"), (event) => this.#copy(new URL(app.link({}), location.href).href, event.currentTarget)),
      this.copyCommand, this.#saving()), this.command, ...(this.#isInLink() ? [] : [h("p", { class: "hint" }, app.t("link-without-file"))]));
    this.#command();
  }

  // What can be changed, which follows from what the model takes.
  #hint() {
    const app = this.#app;
    return app.t("no-changes", { more: app.model ? app.t(`no-changes-${modality(app.model)}`) : "" });
  }

  // What the model was given, as the file that the command reads.
  #saving() {
    const app = this.#app;
    const blob = app.input?.what.blob;
    if (!blob) return null;
    const name = app.model.takes === "audio" ? "recording.wav" : "picture.png";
    return button(app.t("save-file", { name }), () => {
      const address = URL.createObjectURL(blob);
      h("a", { href: address, download: name }).click();
      setTimeout(() => URL.revokeObjectURL(address), 1000);
    }, { class: "save-file", title: app.t("save-hint") });
  }

  // A link names examples and texts. What was dropped, or painted over, is in this tab alone.
  #isInLink() {
    const app = this.#app;
    return !app.painted && (!app.input?.what.blob || Boolean(examplesOf(app.model).find(({ id }) => id === (app.state.example ?? id))));
  }

  #undoInput() {
    const app = this.#app;
    if (app.painted) app.paint(null);
    const { text, pair, was, "was-pair": wasPair } = app.state;
    if (was !== null || wasPair !== null) app.set({ text: was ?? text, pair: wasPair ?? pair, was: null, "was-pair": null });
  }

  #row(path) {
    const app = this.#app;
    const scale = slider(app.t("times"), { min: -1, max: 2, step: 0.05, value: 0, format: (number) => number.toFixed(2) }, (factor) => {
      app.edit(path, factor === 0 ? { do: "zero" } : { do: "scale", factor }, { replace: true });
    });
    scale.input.setAttribute("aria-label", `${app.t("times")} ${path}`);
    const what = h("span", { class: "what" });
    const row = h("li", { class: "edit" }, h("span", { class: "mono", title: path }, path), what, button("×", () => app.edit(path, null), { class: "quiet", "aria-label": `${app.t("undo")}: ${path}` }), scale);
    row.show = (edit) => {
      what.textContent = app.t(`do-${edit.do}`) + (edit.tokens ? ` @${edit.tokens.join(",")}` : "");
      scale.hidden = edit.do === "from" || edit.do === "clamp";
      scale.show(edit.do === "scale" ? edit.factor : 0);
    };
    return row;
  }

  #command() {
    if (!this.command) return;
    const { command } = this.#app;
    this.command.textContent = command ?? this.#app.t("no-command");
    this.copyCommand.disabled = command === null;
  }

  async #copy(text, from) {
    const said = from.textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Without a secure context there is no clipboard: the old way.
      const field = h("textarea", {}, text);
      document.body.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
    }
    from.textContent = this.#app.t("copied");
    this.#app.say(this.#app.t("copied"));
    setTimeout(() => { from.textContent = said; }, 1200);
  }
}
