// All heads of all layers as small maps: one canvas, and a button over each map.

import { h } from "./dom.js";
import { pathOf } from "./app.js";
import { SEQUENTIAL } from "./views/colours.js";
import { arrows, press } from "./views/choose.js";

// Pixels between two maps, and the fewest of a map: small ones are drawn larger, so that the gap stays thin.
const GAP = 2;
const FEWEST = 22;

export class HeadGrid {
  constructor(app, { onchoose }) {
    Object.assign(this, { app, onchoose, key: "" });
    this.canvas = h("canvas", { class: "pixels", "aria-hidden": "true" });
    this.cells = h("div", { class: "cells", role: "group", "aria-label": app.t("all-heads") });
    this.heads = h("div", { class: "names across", "aria-hidden": "true" });
    this.layers = h("div", { class: "names down", "aria-hidden": "true" });
    this.element = h("div", { class: "headgrid" }, h("span", { class: "corner", "aria-hidden": "true" }, app.t("layer-by-head")), this.heads, this.layers, h("div", { class: "area" }, this.canvas, this.cells));
  }

  // `values`: `[layers, heads, rows, columns]`, each map on its own scale.
  draw({ layers, heads, rows, columns, values, root }) {
    this.#build(layers, heads);
    const times = Math.max(1, Math.ceil(FEWEST / Math.max(rows, columns)));
    const [wide, high] = [columns * times + GAP, rows * times + GAP];
    const { canvas } = this;
    if (canvas.width !== heads * wide || canvas.height !== layers * high) [canvas.width, canvas.height] = [heads * wide, layers * high];
    const context = canvas.getContext("2d");
    const picture = context.createImageData(canvas.width, canvas.height);
    const size = rows * columns;
    for (let one = 0; one < layers * heads; one++) {
      const first = one * size;
      let top = 1e-12;
      for (let at = first; at < first + size; at++) if (values[at] > top) top = values[at];
      const [left, above] = [(one % heads) * wide + GAP / 2, Math.floor(one / heads) * high + GAP / 2];
      for (let row = 0; row < rows * times; row++) {
        for (let column = 0; column < columns * times; column++) {
          let share = Math.max(0, values[first + Math.floor(row / times) * columns + Math.floor(column / times)] / top);
          if (root) share = Math.sqrt(share);
          const step = 3 * Math.round(255 * share);
          const pixel = 4 * ((above + row) * canvas.width + left + column);
          picture.data[pixel] = SEQUENTIAL[step];
          picture.data[pixel + 1] = SEQUENTIAL[step + 1];
          picture.data[pixel + 2] = SEQUENTIAL[step + 2];
          picture.data[pixel + 3] = 255;
        }
      }
    }
    context.putImageData(picture, 0, 0);
    this.element.style.setProperty("--shape", `${heads * wide} / ${layers * high}`);
    this.mark();
  }

  #build(layers, heads) {
    const key = `${layers} ${heads}`;
    if (this.key === key) return;
    this.key = key;
    const { app } = this;
    this.element.style.setProperty("--layers", layers);
    this.element.style.setProperty("--heads", heads);
    const cells = [];
    for (let layer = 0; layer < layers; layer++) {
      for (let head = 0; head < heads; head++) {
        cells.push(h("button", { type: "button", "aria-label": app.t("layer-head", { layer, head }), title: app.t("layer-head", { layer, head }), dataset: { layer, head }, onclick: () => this.onchoose(layer, head) }));
      }
    }
    arrows(cells, () => heads);
    this.cells.replaceChildren(...cells);
    this.heads.replaceChildren(...Array.from({ length: heads }, (_, head) => h("span", {}, String(head))));
    this.layers.replaceChildren(...Array.from({ length: layers }, (_, layer) => h("span", {}, String(layer))));
  }

  // The chosen head, and those that are changed.
  mark() {
    const { app } = this;
    const cells = [...this.cells.children];
    press(cells, ({ layer, head }) => Number(layer) === app.layer && Number(head) === app.head);
    for (const cell of cells) {
      const path = `${pathOf(app.group.attention, cell.dataset.layer)}.heads.${cell.dataset.head}`;
      cell.classList.toggle("off", Boolean(app.edited(path)));
    }
  }
}
