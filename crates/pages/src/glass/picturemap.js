// A map over the picture: where one token of it looks. Pointing at a patch asks of that patch.

import { h } from "./dom.js";
import { ARROWS, cellAt } from "./views/choose.js";
import { heat } from "./views/heat.js";
import { percent, scaleOf } from "./views/numbers.js";

export class PictureMap {
  constructor(app, { onquery }) {
    Object.assign(this, { app, onquery, token: 0, weights: null });
    this.image = h("img", { alt: "", class: "under" });
    this.canvas = h("canvas", { class: "pixels", role: "img", tabindex: 0, "aria-label": app.t("attention-picture") });
    this.marker = h("div", { class: "marker", hidden: true });
    this.stage = h("div", { class: "stage picture-stage" }, this.image, this.canvas, this.marker);
    this.front = h("div", { class: "front", role: "group", "aria-label": app.t("special-tokens") });
    this.element = h("div", { class: "picture-map" }, this.stage, this.front);
    this.stage.addEventListener("pointermove", (event) => { if (event.pointerType === "mouse") onquery(this.#tokenAt(event), event.buttons === 1); });
    this.stage.addEventListener("pointerleave", () => onquery(null, false));
    this.stage.addEventListener("click", (event) => onquery(this.#tokenAt(event), true));
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  get grid() { return this.app.input?.grid; }

  async open() {
    const { app, grid } = this;
    if (!grid) return;
    const { image: [height, width] } = grid;
    this.stage.style.setProperty("--shape", `${width} / ${height}`);
    this.stage.style.setProperty("--ratio", width / height);
    this.image.classList.toggle("pixels", width < 100);
    const names = Array.from({ length: grid.prefix }, (_, token) => this.nameOf(token));
    if (this.front.childElementCount !== names.length) {
      this.front.replaceChildren(...names.map((name, token) => h("button", { type: "button", class: "chip", dataset: { token }, onclick: () => this.onquery(token, true) }, name)));
    }
    const address = await app.seen().catch(() => null);
    if (address) this.image.src = address;
  }

  nameOf(token) {
    const { prefix, cols } = this.grid;
    if (token < prefix) return token === 0 ? this.app.t("class-token") : this.app.t("register", { n: token });
    return this.app.t("patch-at", { row: Math.floor((token - prefix) / cols), column: (token - prefix) % cols });
  }

  #tokenAt(event) {
    const { prefix, rows, cols } = this.grid;
    const [row, column] = cellAt(event, this.stage, rows, cols);
    return prefix + row * cols + column;
  }

  #key(event) {
    const step = ARROWS[event.key];
    if (!step || !this.grid) return;
    event.preventDefault();
    const { prefix, rows, cols } = this.grid;
    const patch = this.token < prefix ? Math.floor(rows / 2) * cols + Math.floor(cols / 2) : this.token - prefix;
    const row = Math.min(rows - 1, Math.max(0, Math.floor(patch / cols) + step[0]));
    const column = Math.min(cols - 1, Math.max(0, (patch % cols) + step[1]));
    this.onquery(prefix + row * cols + column, true);
  }

  // `weights` of all keys for the query `token`.
  draw({ weights, token, root }) {
    Object.assign(this, { weights, token });
    const { prefix, rows, cols } = this.grid;
    const patches = weights.subarray(prefix);
    const [low, high] = scaleOf(patches);
    heat(this.canvas, { values: patches, rows, columns: cols, low, high, root, overlay: true });
    const isPatch = token >= prefix;
    this.marker.hidden = !isPatch;
    if (isPatch) {
      const patch = token - prefix;
      const style = { left: (100 * (patch % cols)) / cols, top: (100 * Math.floor(patch / cols)) / rows, width: 100 / cols, height: 100 / rows };
      for (const [name, value] of Object.entries(style)) this.marker.style[name] = `${value}%`;
    }
    for (const chip of this.front.children) chip.setAttribute("aria-pressed", String(Number(chip.dataset.token) === token));
  }

  says(where) {
    const { prefix } = this.grid;
    const patches = this.weights.subarray(prefix);
    let best = 0;
    let front = 0;
    patches.forEach((weight, at) => { if (weight > patches[best]) best = at; });
    for (let at = 0; at < prefix; at++) front += this.weights[at];
    return this.app.t(prefix ? "picture-says" : "picture-says-bare", { where, token: this.nameOf(this.token), patch: this.nameOf(prefix + best), most: percent(patches[best]), front: percent(front), patches: percent(1 - front) });
  }
}
