// What several figures share: the pictures to choose from, bars of an answer, a grid of patches, and drawing only the newest.

import { exampleOf, examplesOf } from "../examples.js";
import { button, clear, h } from "../dom.js";
import { heat } from "../views/heat.js";
import { percent } from "../views/numbers.js";
import { common } from "./text.js";

// A text whose parts between backticks are code.
export const rich = (text) => text.split("`").map((part, at) => (at % 2 ? h("code", {}, part) : part));

// A text with links: `[what is read](where it is)`. They open beside this page, which keeps its place.
export const linked = (text) => text.split(/(\[[^\]]+\]\([^)]+\))/).map((part) => {
  const [, name, href] = part.match(/^\[(.+)\]\((.+)\)$/) ?? [];
  return href ? h("a", { href, target: "_blank", rel: "noreferrer" }, name) : part;
});

// Said in a figure's place where no model fits.
export const missing = (container, app, what = common.noPictures) => container.append(h("p", { class: "note warn" }, rich(app.t(what))));

// Calls `work` with whether it is still the newest; an answer that comes late is dropped, a refusal is said in `place`.
export function latest(place) {
  let turn = 0;
  const run = async (work) => {
    const mine = ++turn;
    try {
      const shown = await work(() => mine === turn);
      if (mine === turn) place.classList.remove("waiting");
      return shown;
    } catch (error) {
      if (mine === turn) place.replaceChildren(h("p", { class: "note warn" }, error.message));
      return null;
    }
  };
  run.stop = () => { turn++; };
  return run;
}

// The pictures that a model knows, as small buttons. `onchange(record, example)` gets what the model was given.
export function pictures(app, model, start, onchange) {
  const examples = examplesOf(model).filter((example) => example.draw);
  const buttons = examples.map((example) => {
    const canvas = h("canvas", { class: "pixels", width: 1, height: 1, "aria-hidden": "true" });
    Promise.resolve(example.draw(canvas)).catch(() => {});
    return h("button", { type: "button", class: "picture", title: example.name, "aria-label": example.name, "aria-pressed": "false", onclick: () => choose(example) }, canvas);
  });
  const row = h("div", { class: "pictures", role: "group", "aria-label": app.t(common.picture) }, buttons);
  async function choose(example) {
    examples.forEach((one, at) => buttons[at].setAttribute("aria-pressed", String(one === example)));
    onchange(await app.give(await exampleOf(model, example.id), model), example);
  }
  const first = examples[Math.min(start, examples.length - 1)];
  row.first = () => first && choose(first).catch((error) => row.after(h("p", { class: "note warn" }, error.message)));
  return row;
}

// The most probable answers as bars, in a fixed order of rows so that they move and do not jump. `before`: shares to mark.
export function answerBars(app, labels, name) {
  const rows = labels.map((label) => {
    const bar = h("i");
    const number = h("span", { class: "number" });
    const mark = h("b", { hidden: true });
    return { bar, number, mark, row: h("li", {}, h("span", { class: "bar-label" }, label), h("span", { class: "bar-track" }, bar, mark), number) };
  });
  const list = h("ul", { class: "tour-bars", "aria-label": name }, rows.map((one) => one.row));
  list.show = (shares, before = null) => {
    const most = Math.max(...shares);
    rows.forEach(({ row, bar, number, mark }, at) => {
      bar.style.width = `${100 * shares[at]}%`;
      number.textContent = percent(shares[at]);
      row.classList.toggle("most", shares[at] === most);
      mark.hidden = !before;
      if (before) mark.style.left = `${100 * before[at]}%`;
    });
  };
  return list;
}

// Probabilities of all classes in the order of the labels.
export function sharesOf(answer, labels) {
  const shares = labels.map(() => 0);
  for (const one of answer?.top ?? []) shares[one.index] = one.score;
  return shares;
}

// A picture under a grid of patches that can be pointed at and walked through with the arrow keys.
export function patchGrid(app, { rows, cols, name, onchoose }) {
  const image = h("img", { class: "pixels", alt: "" });
  const overlay = h("canvas", { class: "pixels overlay", "aria-hidden": "true", width: cols, height: rows });
  const cells = Array.from({ length: rows * cols }, (_, at) => h("button", {
    type: "button", tabindex: at ? -1 : 0, "aria-label": app.t(common.patch, { n: at + 1 }), "aria-pressed": "false",
    onclick: () => choose(at), onpointerenter: (event) => event.pointerType === "mouse" && choose(at), onfocus: () => choose(at), onkeydown: (event) => walk(event, at),
  }));
  const grid = h("div", { class: "patch-cells", role: "group", "aria-label": name, style: { "--rows": rows, "--cols": cols } }, cells);
  const whole = h("div", { class: "patches" }, image, overlay, grid);
  let chosen = -1;
  function choose(at) {
    if (at === chosen) return;
    if (chosen >= 0) cells[chosen].setAttribute("aria-pressed", "false");
    chosen = at;
    cells[at].setAttribute("aria-pressed", "true");
    cells.forEach((cell, one) => { cell.tabIndex = one === at ? 0 : -1; });
    onchoose(at);
  }
  function walk(event, at) {
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -cols, ArrowDown: cols }[event.key];
    if (!by || at + by < 0 || at + by >= cells.length) return;
    event.preventDefault();
    cells[at + by].focus();
  }
  whole.picture = (address) => { image.src = address; };
  whole.paint = (values) => heat(overlay, { values, rows, columns: cols, low: 0, high: Math.max(...values), overlay: true });
  whole.choose = choose;
  return whole;
}

// A row of numbers as a strip of colours.
export function strip(name) {
  const canvas = h("canvas", { class: "pixels strip", role: "img", "aria-label": name, width: 1, height: 1 });
  canvas.show = (values, reach) => heat(canvas, { values, rows: 1, columns: values.length, low: -reach, high: reach, diverging: true });
  return canvas;
}

// A button that puts a line into the clipboard.
export function command(app, line) {
  const copy = button(app.t({ en: "Copy", zh: "复制" }), async () => {
    await navigator.clipboard?.writeText(line).catch(() => {});
    copy.textContent = app.t({ en: "Copied", zh: "已复制" });
  }, { "aria-label": `${app.t({ en: "Copy", zh: "复制" })}: ${line}` });
  return h("div", { class: "take-along" }, h("code", {}, line), copy);
}

export { clear };
