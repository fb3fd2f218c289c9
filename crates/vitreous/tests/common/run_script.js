// Runs the script of a page without a browser: `node run_script.js PAGE QUESTION` prints the value of an expression, as JSON.
// Of the document there is only what the scripts touch; a canvas keeps what was painted last.

const fs = require("node:fs");
const vm = require("node:vm");

const [, , file, question] = process.argv;
const page = fs.readFileSync(file, "utf8");
const scripts = [...page.matchAll(/<script([^>]*)>([\s\S]*?)<\/script>/g)];

function element(dataset = {}) {
  return {
    dataset,
    attributes: {},
    children: [],
    options: [],
    style: { setProperty() {} },
    classList: { toggle() {} },
    textContent: "",
    value: "",
    checked: false,
    addEventListener() {},
    append() {},
    closest: () => element(),
    setAttribute(name, value) { this.attributes[name] = String(value); },
    replaceChildren(...children) { this.children = this.options = children; },
    querySelectorAll() { return this.children; },
    querySelector(what) { return (this[`first ${what}`] ??= element()); },
    getContext() {
      return {
        createImageData: (width, height) => ({ width, height, data: new Uint8ClampedArray(4 * width * height) }),
        putImageData: (picture) => { this.painted = picture; },
      };
    },
  };
}

// The buttons in an element, with their data attributes.
function buttons(id) {
  const inside = (page.split(`id="${id}"`)[1] ?? "").split("</div>")[0];
  return [...inside.matchAll(/<button([^>]*)>/g)].map(([, attributes]) => {
    const named = [...attributes.matchAll(/data-([a-z]+)="([^"]*)"/g)];
    return element(Object.fromEntries(named.map(([, name, value]) => [name, value])));
  });
}

const elements = new Map();
function byId(id) {
  if (id === "similar" && !page.includes(`id="${id}"`)) return null;
  if (!elements.has(id)) {
    const made = element();
    made.children = buttons(id);
    if (id === "explain-data") made.textContent = scripts.find(([, start]) => start.includes(`id="${id}"`))[2];
    if (id === "kind") made.value = "cross";
    if (id === "whole") made.checked = true;
    elements.set(id, made);
  }
  return elements.get(id);
}

const drawing = element();
const context = vm.createContext({
  atob,
  URLSearchParams,
  addEventListener() {},
  location: { hash: "" },
  history: { pushState() {}, replaceState() {} },
  Option: function Option(text, value) { Object.assign(this, { text, value }); },
  document: {
    getElementById: byId,
    createElement: () => element(),
    createElementNS: () => element(),
    querySelector: () => drawing,
    querySelectorAll: () => [],
    documentElement: element(),
    body: element(),
  },
});
for (const [, start, text] of scripts) if (!start.includes("json")) vm.runInContext(text, context);
process.stdout.write(JSON.stringify(vm.runInContext(question, context)));
