// The path: a short tour from attention by hand to a decoder that writes, on the models at hand.

import { button, clear, h } from "../dom.js";
import { linked } from "./kit.js";
import { common, steps } from "./text.js";

export const id = "tour";
export const title = { en: "The path", zh: "导览" };
export const needs = "none";

// In the order of the tour; each figure is loaded when its step is opened.
const ORDER = ["hand", "head", "heads", "block", "whole", "training", "writes", "next"];

let view = null;

export async function mount(container, app) {
  await app.style("tour/tour.css");
  view = new Tour(container, app);
  view.open();
}

export function unmount() {
  view?.close();
  view = null;
}

export function update(change) {
  if (change.has("step")) view?.open();
  else if (change.has("models") || change.has("scheme")) view?.show();
}

// The models that the figures use: the one chosen, if it fits, or the first that does.
export function cast(app) {
  const fits = (test) => (app.model && test(app.model) ? app.model : app.models.find(test)) ?? null;
  const small = app.models.find((model) => model.name === "small" && !model.untrained);
  const classifies = (model) => model.takes === "image" && model.gives === "classes" && !model.untrained;
  return {
    picture: small ?? fits(classifies),
    untrained: app.models.find((model) => model.untrained && model.takes === "image") ?? null,
    writer: fits((model) => model.gives === "next_token"),
  };
}

class Tour {
  constructor(container, app) {
    [this.app, this.at, this.turn, this.end] = [app, -1, 0, null];
    this.list = h("ol", { class: "tour-steps" }, ORDER.map((name, at) => h("li", {}, button("", () => this.go(at), { dataset: { step: name } }))));
    this.page = h("article", { class: "tour-page" });
    this.nav = h("nav", { class: "row tour-nav", "aria-label": app.t(common.steps) });
    container.append(h("div", { class: "guide" }, h("nav", { "aria-label": app.t(common.steps) }, this.list), h("div", {}, this.page, this.nav)));
    this.onkey = (event) => this.key(event);
    addEventListener("keydown", this.onkey);
  }

  close() {
    removeEventListener("keydown", this.onkey);
    this.turn++;
    this.end?.();
  }

  // The step that the address names, from 1.
  open() {
    const named = Number(this.app.state.step);
    const at = Number.isInteger(named) && named >= 1 && named <= ORDER.length ? named - 1 : 0;
    if (at !== this.at) {
      const isFirst = this.at === -1;
      this.at = at;
      this.show(!isFirst);
    }
  }

  go(at) {
    const to = Math.max(0, Math.min(ORDER.length - 1, at));
    if (to !== this.at) this.app.set({ step: String(to + 1) });
  }

  key(event) {
    const by = { PageDown: 1, PageUp: -1 }[event.key];
    if (!by || event.ctrlKey || event.altKey || event.metaKey || event.target.closest?.("input, textarea, select, [role=dialog]")) return;
    // These keys scroll first, and turn the page at its ends.
    const { scrollTop, scrollHeight, clientHeight } = document.scrollingElement;
    const isAtEnd = by > 0 ? scrollTop + clientHeight >= scrollHeight - 4 : scrollTop <= 4;
    if (!isAtEnd) return;
    event.preventDefault();
    this.go(this.at + by);
  }

  async show(isTurned = false) {
    const { app } = this;
    const turn = ++this.turn;
    this.end?.();
    this.end = null;
    const name = ORDER[this.at];
    const step = steps[name];
    const place = app.t(common.step, { n: this.at + 1, of: ORDER.length });
    ORDER.forEach((one, at) => {
      const each = this.list.children[at].firstChild;
      each.replaceChildren(h("span", { class: "tour-number" }, String(at + 1)), h("span", { class: "tour-name" }, app.t(steps[one].title)));
      if (at === this.at) each.setAttribute("aria-current", "step");
      else each.removeAttribute("aria-current");
    });
    const heading = h("h2", { tabindex: -1 }, app.t(step.title));
    const figure = h("div", { class: "panel tour-figure" });
    // The same step in other colours: what stands below does not jump while its figure is drawn again.
    const before = isTurned ? null : this.page.querySelector(".tour-figure");
    if (before) figure.style.minHeight = `${before.offsetHeight}px`;
    const words = step.words[app.lang].map((paragraph) => h("p", {}, linked(paragraph)));
    clear(this.page);
    this.page.append(
      h("p", { class: "note tour-place" }, place), heading, h("div", { class: "tour-words" }, words), figure,
      h("p", { class: "tour-try" }, h("strong", {}, app.t(common.attempt)), " ", app.t(step.attempt)));
    clear(this.nav);
    const isLast = this.at === ORDER.length - 1;
    this.nav.append(
      button(`← ${app.t(common.back)}`, () => this.go(this.at - 1), { disabled: this.at === 0 }),
      isLast ? button(app.t(common.again), () => this.go(0), { class: "primary" }) : button(`${app.t(common.next)} →`, () => this.go(this.at + 1), { class: "primary" }),
      h("span", { class: "note tour-keys" }, app.t(common.keys)));
    if (isTurned) {
      heading.focus({ preventScroll: true });
      this.page.scrollIntoView({ block: "start" });
      app.say(`${place}: ${app.t(step.title)}`);
    }
    const module = await import(`./${name}.js`);
    if (turn !== this.turn) return;
    this.end = module.figure(figure, app, cast(app)) ?? null;
  }
}
