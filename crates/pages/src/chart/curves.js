// Curves that say their values under the pointer, and can be smoothed: every element of class `curves`.

// Series of fewer points, such as one per epoch, are not smoothed.
const FEWEST = 10;

// TensorBoard's smoothing: an exponential moving average, corrected for its start at 0.
function smoothed(values, weight) {
  if (weight === 0 || values.length < FEWEST) return values;
  let [last, count] = [0, 0];
  return values.map((value) => {
    last = last * weight + (1 - weight) * value;
    count += 1;
    return last / (1 - weight ** count);
  });
}

function readable(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2);
  return Number(value.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 5 });
}

class Curves {
  constructor(element) {
    this.element = element;
    this.drawing = element.querySelector("svg");
    this.data = JSON.parse(element.querySelector("script").textContent);
    this.data.series.forEach((series, index) => { series.index = index; });
    this.series = this.data.series.filter((series) => series.x.length);
    this.steps = [...new Set(this.series.flatMap((series) => series.x))].sort((a, b) => a - b);
    this.paths = this.add("g", { fill: "none", "stroke-width": 2, "stroke-linejoin": "round" });
    this.cursor = this.add("g", { visibility: "hidden", "pointer-events": "none" });
    this.tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
    this.tip.setAttribute("role", "status");
    element.append(this.tip);
    this.at = null;
    element.addEventListener("pointermove", (event) => this.show(this.nearest(event)));
    element.addEventListener("pointerdown", (event) => this.show(this.nearest(event)));
    element.addEventListener("pointerleave", () => this.hide());
    element.addEventListener("blur", () => this.hide());
    element.addEventListener("keydown", (event) => this.key(event));
    this.smooth(0);
  }

  add(name, attributes, parent = this.drawing) {
    const element = document.createElementNS(this.drawing.namespaceURI, name);
    Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
    return parent.appendChild(element);
  }

  // The place of a value on an axis, in the drawing's units.
  place(axis, value) {
    const { low, high, from, to, log } = this.data[axis];
    const share = log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
    return from + Math.min(1, Math.max(0, share)) * (to - from);
  }

  smooth(weight) {
    this.paths.replaceChildren();
    for (const series of this.series) {
      series.shown = smoothed(series.y, weight);
      const isSmooth = series.shown !== series.y;
      this.drawing.querySelector(`[data-series="${series.index}"]`)?.classList.toggle("faint", isSmooth);
      if (!isSmooth) continue;
      const points = series.x.map((x, at) => `${this.place("x", x).toFixed(1)} ${this.place("y", series.shown[at]).toFixed(1)}`);
      this.add("path", { d: `M${points.join("L")}`, stroke: series.colour, "stroke-dasharray": series.dashes }, this.paths);
    }
    if (this.at !== null) this.show(this.at);
  }

  // The index of the measured step nearest to the pointer.
  nearest(event) {
    const box = this.drawing.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * this.drawing.viewBox.baseVal.width;
    const distance = (step) => Math.abs(this.place("x", step) - x);
    return this.steps.reduce((best, step, at) => (distance(step) < distance(this.steps[best]) ? at : best), 0);
  }

  show(at) {
    if (!this.steps.length) return;
    this.at = at;
    const step = this.steps[at];
    const x = this.place("x", step);
    const { from, to } = this.data.y;
    this.cursor.replaceChildren();
    this.cursor.setAttribute("visibility", "visible");
    this.add("path", { d: `M${x} ${from}V${to}`, stroke: "var(--soft)", "stroke-dasharray": "3 3" }, this.cursor);
    const rows = [Object.assign(document.createElement("strong"), { textContent: `${this.data.x.title} ${readable(step)}` })];
    for (const series of this.series) rows.push(this.row(series, step));
    this.tip.replaceChildren(...rows);
    this.tip.hidden = false;
    const { width } = this.drawing.viewBox.baseVal;
    const isRight = x > width / 2;
    this.tip.style.left = isRight ? "auto" : `calc(${(100 * x) / width}% + 12px)`;
    this.tip.style.right = isRight ? `calc(${100 - (100 * x) / width}% + 12px)` : "auto";
  }

  // A series' value at the step, or at its nearest one, which is then named.
  row(series, step) {
    const near = series.x.reduce((best, x, at) => (Math.abs(x - step) < Math.abs(series.x[best] - step) ? at : best), 0);
    const [x, y] = [this.place("x", series.x[near]), this.place("y", series.shown[near])];
    this.add("circle", { cx: x, cy: y, r: 4.5, fill: series.colour, stroke: "var(--card)", "stroke-width": 1.5 }, this.cursor);
    const row = document.createElement("span");
    const swatch = Object.assign(document.createElement("i"), { className: "swatch" });
    swatch.style.background = series.colour;
    const notes = [];
    if (series.shown !== series.y) notes.push(`measured ${readable(series.y[near])}`);
    if (series.x[near] !== step) notes.push(`${this.data.x.title} ${readable(series.x[near])}`);
    row.append(swatch, `${series.name}: ${readable(series.shown[near])}${notes.length ? ` (${notes.join(", ")})` : ""}`);
    return row;
  }

  hide() {
    this.at = null;
    this.cursor.setAttribute("visibility", "hidden");
    this.tip.hidden = true;
  }

  key(event) {
    const last = this.steps.length - 1;
    const at = { ArrowLeft: (this.at ?? last + 1) - 1, ArrowRight: (this.at ?? -1) + 1, Home: 0, End: last }[event.key];
    if (event.key === "Escape") this.hide();
    if (at === undefined) return;
    event.preventDefault();
    this.show(Math.min(last, Math.max(0, at)));
  }
}

const curves = [...document.querySelectorAll(".curves")].map((element) => new Curves(element));
document.getElementById("smoothing")?.addEventListener("input", (event) => {
  document.getElementById("smoothing-value").textContent = Number(event.target.value).toFixed(2);
  curves.forEach((one) => one.smooth(Number(event.target.value)));
});
