// Elements, made in one line each.

const NAMESPACE = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [property, set] of Object.entries(value)) element.style.setProperty(property, String(set));
    else if (name === "dataset") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(NAMESPACE, tag), attributes, children);
export const clear = (element) => element.replaceChildren();

export const button = (text, onclick, attributes = {}) => h("button", { type: "button", onclick, ...attributes }, text);

// One of a few: a row of buttons. `options`: [value, text, what it does?].
export function segmented(label, options, value, onchange) {
  const buttons = options.map(([one, text, title]) => button(text, () => choose(one, true), { "aria-pressed": String(one === value), dataset: { value: one }, title }));
  const group = h("div", { class: "segmented", role: "group", "aria-label": label }, buttons);
  function choose(one, isAsked) {
    for (const each of buttons) each.setAttribute("aria-pressed", String(each.dataset.value === String(one)));
    if (isAsked) onchange(one);
  }
  group.choose = (one) => choose(one, false);
  return group;
}

// A slider with its name and its number. `format` writes the number.
export function slider(label, { min, max, step, value, format = String }, oninput) {
  const output = h("output", { class: "number" }, format(value));
  const input = h("input", { type: "range", min, max, step, value, "aria-label": label, oninput: () => {
    output.textContent = format(Number(input.value));
    oninput(Number(input.value));
  } });
  const row = h("label", { class: "slider" }, h("span", {}, label), input, output);
  row.input = input;
  row.show = (number) => {
    input.value = number;
    output.textContent = format(number);
  };
  return row;
}

export function toggle(label, value, onchange) {
  const input = h("input", { type: "checkbox", onchange: () => onchange(input.checked) });
  input.checked = value;
  const row = h("label", { class: "toggle" }, input, h("span", {}, label));
  row.input = input;
  return row;
}

// One of many.
export function choice(label, options, value, onchange) {
  const select = h("select", { onchange: () => onchange(select.value) }, options.map(([one, text]) => h("option", { value: one }, text)));
  select.value = String(value);
  const row = h("label", { class: "choice" }, h("span", {}, label), select);
  row.select = select;
  return row;
}

// The colour bar of a map with the numbers at its ends.
export function legend({ low, high, diverging = false, label = "" }) {
  return h("div", { class: "legend" },
    label && h("span", { class: "name" }, label),
    h("span", { class: "number" }, low), h("span", { class: diverging ? "scale diverging" : "scale" }), h("span", { class: "number" }, high));
}

// The canvas of a map, with a name for readers who cannot see it.
export const map = (name, attributes = {}) => h("canvas", { class: "pixels", role: "img", "aria-label": name, width: 1, height: 1, ...attributes });
