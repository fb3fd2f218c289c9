// Bars of shares, before and after, and small charts of numbers.

import { h, svg } from "./dom.js";

// Rows of a name, a bar and a number. `before`: what it was, as a thin bar below. The rows stay in place when numbers change.
export class Bars {
  constructor({ rows, label, onchoose = null }) {
    this.element = h("ol", { class: "bars", "aria-label": label });
    this.rows = Array.from({ length: rows }, () => {
      const name = h("span", { class: "name" });
      const value = h("span", { class: "number" });
      const change = h("span", { class: "change number" });
      const bar = h("span", { class: "bar", "aria-hidden": "true" }, h("i"), h("b"));
      const inside = onchoose ? h("button", { type: "button", class: "bar-row", onclick: () => row.item && onchoose(row.item) }, name, bar, value, change) : h("span", { class: "bar-row" }, name, bar, value, change);
      const element = h("li", {}, inside);
      const row = { element, inside, name, value, change, bar, item: null };
      this.element.append(element);
      return row;
    });
  }

  // `items`: { name, share, text, before?, change?, title? }; shares are of the longest bar.
  show(items) {
    this.rows.forEach((row, at) => {
      const item = items[at];
      row.item = item ?? null;
      row.element.classList.toggle("empty", !item);
      row.name.textContent = item?.name ?? "";
      row.inside.title = item?.title ?? item?.name ?? "";
      row.value.textContent = item?.text ?? "";
      row.change.textContent = item?.change ?? "";
      row.bar.style.setProperty("--share", (item?.share ?? 0).toFixed(4));
      row.bar.style.setProperty("--before", (item?.before ?? 0).toFixed(4));
      row.bar.classList.toggle("was", item?.before !== undefined);
    });
  }
}

// Where the first and the last value of lines are drawn, as shares of the drawing's width: what stands below can be in line with them.
const [WIDTH, LEFT, RIGHT] = [640, 46, 14];
export const PLOT = { from: LEFT / WIDTH, to: 1 - RIGHT / WIDTH };

// Lines over an even axis: `series`: { name, values, colour }. The name of the drawing says what it shows.
export function lines({ series, width = WIDTH, height = 220, low, high, ticks, xTicks, label, mark = null }) {
  const [left, right, top, bottom] = [LEFT, RIGHT, 10, 26];
  const count = Math.max(...series.map(({ values }) => values.length));
  const x = (at) => left + (at / Math.max(1, count - 1)) * (width - left - right);
  const y = (value) => top + (1 - (value - low) / (high - low || 1)) * (height - top - bottom);
  const drawing = svg("svg", { class: "lines-chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (const [value, text] of ticks) {
    drawing.append(svg("line", { class: "tick", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      svg("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, text));
  }
  for (const [at, text] of xTicks) drawing.append(svg("text", { x: x(at), y: height - 6, "text-anchor": "middle" }, text));
  if (mark !== null) drawing.append(svg("line", { class: "mark", x1: x(mark), x2: x(mark), y1: top, y2: height - bottom }));
  for (const { values, colour, dashed } of series) {
    drawing.append(svg("polyline", { points: values.map((value, at) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" "), stroke: colour, "stroke-dasharray": dashed ? "5 4" : null }));
  }
  return drawing;
}
