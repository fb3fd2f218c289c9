// A map whose cells are read one by one, by pointer and by arrow keys. The cell that is read has a frame.

import { h } from "./dom.js";
import { ARROWS, cellAt } from "./views/choose.js";

export class CellMap {
  #size = [0, 0];
  #kept = null;

  // `say(row, column, isKept)` is told the cell that is read; kept is one that was clicked, or that an arrow key went to.
  constructor(canvas, say) {
    Object.assign(this, { canvas, say });
    this.marker = h("div", { class: "marker", hidden: true });
    this.element = h("div", { class: "cell-map" }, canvas, this.marker);
    canvas.tabIndex = 0;
    const at = (event) => cellAt(event, canvas, ...this.#size);
    canvas.addEventListener("pointermove", (event) => this.#read(at(event), false));
    canvas.addEventListener("click", (event) => this.#read(at(event), true));
    canvas.addEventListener("pointerleave", () => this.mark(this.#kept));
    canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  // How many cells there are. The one that was kept stays, if it is still there.
  size(rows, columns) {
    this.#size = [rows, columns];
    const isThere = this.#kept && this.#kept[0] < rows && this.#kept[1] < columns;
    this.mark((this.#kept = isThere ? this.#kept : null));
  }

  // The cell that keys go on from.
  keep(row, column) {
    this.mark((this.#kept = [row, column]));
  }

  mark(cell) {
    this.marker.hidden = !cell;
    if (!cell) return;
    const [rows, columns] = this.#size;
    const [row, column] = cell;
    Object.assign(this.marker.style, { top: `${(100 * row) / rows}%`, left: `${(100 * column) / columns}%`, height: `max(4px, ${100 / rows}%)`, width: `max(4px, ${100 / columns}%)` });
  }

  #read(cell, isKept) {
    if (!this.#size[0] || !this.#size[1]) return;
    if (isKept) this.#kept = cell;
    this.mark(cell);
    this.say(...cell, isKept);
  }

  #key(event) {
    const step = ARROWS[event.key];
    if (!step || !this.#size[0]) return;
    event.preventDefault();
    const next = this.#kept ? this.#kept.map((place, axis) => Math.min(this.#size[axis] - 1, Math.max(0, place + step[axis]))) : [0, 0];
    this.#read(next, true);
  }
}
