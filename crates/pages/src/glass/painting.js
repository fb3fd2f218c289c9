// A mask painted over the picture: what is covered is grey for the model.

import { button, h } from "./dom.js";
import { blobOf } from "./picture.js";

const GREY = "#808080";
const BRUSH = 0.09; // of the longer side
const WAIT_MS = 70;

export class Painting {
  #app;
  #picture;
  #isOn = false;
  #last = null;
  #timer = null;
  #isPainted = false;
  #isBehind = false;
  #cursor = null;

  constructor(app, picture) {
    [this.#app, this.#picture] = [app, picture];
    this.canvas = h("canvas", { class: "mask", role: "img", "aria-label": app.t("mask"), width: 1, height: 1, tabindex: -1 });
    this.switch = button(app.t("paint"), () => this.#turn(!this.#isOn), { "aria-pressed": "false", title: app.t("paint-hint") });
    this.clear = button(app.t("unpaint"), () => this.begin(null), { hidden: true });
    this.tools = h("span", { class: "tools" }, this.switch, this.clear);
    this.canvas.addEventListener("pointerdown", (event) => this.#down(event));
    this.canvas.addEventListener("pointermove", (event) => this.#move(event));
    this.canvas.addEventListener("pointerup", () => { this.#last = null; });
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  // A new picture, or the same without its mask.
  begin(record) {
    const { canvas } = this;
    const wasPainted = this.#isPainted;
    [canvas.width, canvas.height] = [this.#picture.naturalWidth || 1, this.#picture.naturalHeight || 1];
    this.#isPainted = false;
    this.clear.hidden = true;
    if (!record && wasPainted) this.#app.paint(null);
  }

  // Where the mask was taken back elsewhere, it goes here, too.
  follow(isPainted) {
    if (isPainted || !this.#isPainted || this.#timer) return;
    this.#isPainted = false;
    this.clear.hidden = true;
    this.canvas.getContext("2d").clearRect(0, 0, this.canvas.width, this.canvas.height);
  }

  #turn(isOn) {
    this.#isOn = isOn;
    this.switch.setAttribute("aria-pressed", String(isOn));
    this.canvas.classList.toggle("on", isOn);
    this.canvas.tabIndex = isOn ? 0 : -1;
    if (isOn) this.canvas.focus({ preventScroll: true });
  }

  #placeOf(event) {
    const box = this.canvas.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * this.canvas.width, ((event.clientY - box.top) / box.height) * this.canvas.height];
  }

  #down(event) {
    if (!this.#isOn) return;
    event.preventDefault();
    this.canvas.setPointerCapture(event.pointerId);
    this.#last = this.#placeOf(event);
    this.#stroke(this.#last);
  }

  #move(event) {
    if (this.#last) this.#stroke(this.#placeOf(event));
  }

  // Arrow keys move a brush, space paints.
  #key(event) {
    const { width, height } = this.canvas;
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const size = BRUSH * Math.max(width, height);
    this.#cursor ??= [width / 2, height / 2];
    if (step) this.#cursor = [Math.min(width, Math.max(0, this.#cursor[0] + step[0] * size)), Math.min(height, Math.max(0, this.#cursor[1] + step[1] * size))];
    if (event.key === " ") {
      this.#last = this.#cursor;
      this.#stroke(this.#cursor);
      this.#last = null;
    }
    if (step || event.key === " ") event.preventDefault();
    if (event.key === "Escape") this.#turn(false);
  }

  #stroke(to) {
    const context = this.canvas.getContext("2d");
    const size = BRUSH * Math.max(this.canvas.width, this.canvas.height);
    Object.assign(context, { strokeStyle: GREY, lineWidth: 2 * size, lineCap: "round" });
    context.beginPath();
    context.moveTo(...this.#last);
    context.lineTo(to[0] + 0.01, to[1]);
    context.stroke();
    this.#last = to;
    this.#isPainted = true;
    this.clear.hidden = false;
    this.#isBehind = true;
    this.#timer ??= setTimeout(() => this.#send(), WAIT_MS);
  }

  async #send() {
    this.#isBehind = false;
    const { naturalWidth: width, naturalHeight: height } = this.#picture;
    const joined = h("canvas", { width, height });
    const context = joined.getContext("2d");
    context.drawImage(this.#picture, 0, 0);
    context.drawImage(this.canvas, 0, 0);
    const blob = await blobOf(joined);
    if (this.#isPainted) await this.#app.paint(blob);
    this.#timer = this.#isBehind ? setTimeout(() => this.#send(), WAIT_MS) : null;
  }
}
