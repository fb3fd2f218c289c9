// A map of weights between tokens or words, large, with names on its axes; single cells are read by pointer and by arrow keys.

import { ARROWS, cellAt } from "./choose.js";
import { heat } from "./heat.js";

// The largest weight, for readers who cannot see the map.
export function strongest({ rows, columns, values }) {
  let best = 0;
  values.forEach((value, at) => { if (value > values[best] || Number.isNaN(values[best])) best = at; });
  return [Math.floor(best / columns.length), best % columns.length, values[best]];
}

export function paintWeights(canvas, { rows, columns, values }, root) {
  let high = 0;
  for (const value of values) if (value > high) high = value;
  heat(canvas, { values, rows: rows.length, columns: columns.length, low: 0, high, root });
  return high;
}

// `parts`: the elements `map` (canvas), `marker`, `down` and `across` (names). `said(cell)` is called with the cell that is read, or null.
export class Board {
  shown = null;
  cursor = null;

  constructor(parts, said) {
    Object.assign(this, parts, { said });
    const { map } = parts;
    const at = (event) => cellAt(event, map, this.shown.rows.length, this.shown.columns.length);
    map.addEventListener("pointermove", (event) => { if (this.shown) this.read(at(event)); });
    map.addEventListener("pointerleave", () => this.read(this.cursor));
    map.addEventListener("click", (event) => this.read((this.cursor = at(event))));
    map.addEventListener("keydown", (event) => this.#key(event));
  }

  // `shown`: names of rows and columns, and values, NaN where they are masked. Gives the largest.
  show(shown, root) {
    const { map, down, across } = this;
    const isAnother = this.shown?.rows.length !== shown.rows.length || this.shown?.columns.length !== shown.columns.length;
    this.shown = shown;
    const high = paintWeights(map, shown, root);
    map.style.width = `calc(${shown.columns.length} * var(--cell))`;
    map.style.height = `calc(${shown.rows.length} * var(--cell))`;
    fillNames(down, shown.rows);
    fillNames(across, shown.columns);
    if (isAnother) this.cursor = null;
    this.read(this.cursor);
    return high;
  }

  read(cell) {
    const { marker, down, across } = this;
    [down, across].forEach((names, axis) => {
      [...names.children].forEach((one, at) => one.classList.toggle("lit", Boolean(cell) && cell[axis] === at));
    });
    marker.hidden = !cell;
    if (cell) [marker.style.top, marker.style.left] = [`calc(${cell[0]} * var(--cell))`, `calc(${cell[1]} * var(--cell))`];
    this.said(cell && [...cell, this.shown.values[cell[0] * this.shown.columns.length + cell[1]]]);
  }

  #key(event) {
    if (event.key === "Escape") this.read((this.cursor = null));
    const step = ARROWS[event.key];
    if (!step || !this.shown) return;
    event.preventDefault();
    const last = [this.shown.rows.length - 1, this.shown.columns.length - 1];
    this.cursor = this.cursor ? this.cursor.map((place, axis) => Math.min(last[axis], Math.max(0, place + step[axis]))) : [0, 0];
    this.read(this.cursor);
    this.marker.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
}

function fillNames(element, names) {
  if (element.childElementCount === names.length && [...element.children].every((span, at) => span.textContent === names[at])) return;
  element.replaceChildren(...names.map((one) => {
    const span = document.createElement("span");
    span.textContent = one;
    span.title = one;
    return span;
  }));
}
