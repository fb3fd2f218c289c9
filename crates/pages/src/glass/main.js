// The page: its frame, and the view that is open.

import { Answer } from "./answer.js";
import { App } from "./app.js";
import { Changes } from "./changes.js";
import { button, clear, h, segmented } from "./dom.js";
import { Giving } from "./giving.js";
import { LANGUAGES } from "./strings.js";

// A view is shown when it is whole, or after so long.
const MOST_HIDDEN_MS = 1500;

const byId = (id) => document.getElementById(id);

// Titles stand here so that a view is loaded only when it is opened.
const VIEWS = [
  { id: "flow", file: "./flow.js", needs: "input" },
  { id: "attention", file: "./attention.js", needs: "input" },
  { id: "lens", file: "./lens.js", needs: "input" },
  { id: "parts", file: "./parts.js", needs: "input" },
  { id: "compare", file: "./compare.js", needs: "input" },
  { id: "runs", file: "./runs.js", needs: "none" },
  { id: "tour", file: "./tour/index.js", needs: "none" },
];

const app = new App({ askKey, say });
const parts = { giving: new Giving(app, byId("give")), answer: new Answer(app, byId("answer")), changes: new Changes(app, byId("changes")) };
const open = { id: null, module: null, turn: 0 };

function say(text) {
  const live = byId("live");
  if (live.textContent !== text) live.textContent = text;
}

const viewId = () => (VIEWS.some(({ id }) => id === app.state.view) ? app.state.view : "flow");

// ---- The frame.

function drawFrame() {
  document.documentElement.lang = app.lang === "zh" ? "zh-Hans" : "en";
  byId("views").setAttribute("aria-label", app.t("views"));
  const links = VIEWS.map(({ id }) => h("a", { href: app.link({ view: id, step: null }), "aria-current": id === viewId() ? "page" : null, onclick: (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    choose(id);
  } }, app.t(`view-${id}`)));
  const nav = byId("views");
  const had = nav.contains(document.activeElement);
  nav.replaceChildren(...links);
  const current = nav.querySelector("[aria-current]");
  if (had) current?.focus();
  if (current) nav.scrollLeft = Math.max(0, current.offsetLeft - nav.offsetLeft - 40);
  drawModels();
  drawSettings();
}

// On a phone a view stands below input and answer: whoever chooses it is taken to it.
function choose(id) {
  app.set({ view: id, step: null });
  if (matchMedia("(max-width: 860px)").matches) byId("view").scrollIntoView();
}

function drawModels() {
  const options = app.models.map((model) => h("option", { value: model.name }, model.untrained ? `${model.name} (${app.t("untrained")})` : model.name));
  const select = h("select", { "aria-label": app.t("model"), onchange: () => app.set({ model: select.value }) }, options);
  if (app.model) select.value = app.model.name;
  else select.prepend(h("option", { value: "", selected: true, disabled: true }, app.t("choose-model")));
  const facts = app.model ? h("span", { class: "facts number" }, app.t("model-facts", { parameters: millions(app.model.parameters), what: app.model.what ?? "" })) : null;
  byId("choose-model").replaceChildren(select, facts ?? "");
}

const millions = (count) => (count >= 1e6 ? `${(count / 1e6).toFixed(count < 1e7 ? 1 : 0)} M` : `${Math.round(count / 1e3)} k`);

function drawSettings() {
  const scheme = document.documentElement.dataset.scheme ?? "auto";
  byId("settings").replaceChildren(
    segmented(app.t("language"), LANGUAGES, app.lang, (lang) => {
      localStorage.setItem("vitreous-lang", lang);
      app.set({ lang }, { replace: true });
    }),
    segmented(app.t("colours"), [["light", "☀", app.t("light")], ["auto", "◐", app.t("auto")], ["dark", "☾", app.t("dark")]], scheme, setScheme),
    h("a", { class: "quiet", href: "/docs" }, "API"));
  for (const one of byId("settings").querySelectorAll("button[title]")) one.setAttribute("aria-label", one.title);
}

function setScheme(scheme) {
  if (scheme === "auto") delete document.documentElement.dataset.scheme;
  else document.documentElement.dataset.scheme = scheme;
  localStorage.setItem("vitreous-scheme", scheme);
  open.module?.update?.(new Set(["scheme"]));
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => open.module?.update?.(new Set(["scheme"])));

// ---- What stands in the way.

function drawTrouble() {
  const banner = byId("banner");
  const { trouble } = app;
  banner.hidden = !trouble;
  if (!trouble) return;
  const text = { gone: "gone", model: "model-gone", none: "no-model", input: "input-refused" }[trouble.kind];
  banner.className = trouble.kind;
  banner.replaceChildren(h("span", {}, app.t(text, trouble)),
    ...(trouble.kind === "model" && !lacksModel() ? app.models.slice(0, 6).map(({ name }) => button(name, () => app.set({ model: name }))) : []),
    ...(trouble.kind === "none" ? [button(app.t("retry"), () => app.reload())] : []));
}

function askKey(message) {
  return new Promise((done) => {
    const field = h("input", { type: "password", "aria-label": app.t("api-key"), autocomplete: "off", required: true });
    const dialog = h("dialog", { class: "ask" }, h("form", { method: "dialog", onsubmit: () => done(field.value) },
      h("p", {}, app.t("ask-key")), h("p", { class: "note" }, message), field, h("button", { class: "primary" }, app.t("go"))));
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  });
}

// ---- The view.

const needsInput = () => VIEWS.find(({ id }) => id === viewId()).needs === "input";

// Whether a view stands empty because the address names a model that is not served, or there is none at all.
const lacksModel = () => Boolean(needsInput() && !app.model && ["model", "none"].includes(app.trouble?.kind));

// What stands in the place of a view that has nothing to show yet.
function waiting() {
  if (!lacksModel()) return [h("p", { class: "waiting" }, app.trouble || app.model?.takes === "audio" ? app.t("waiting-input") : app.t("loading"))];
  const models = app.models.map(({ name, what, parameters }) => h("li", {}, button(name, () => app.set({ model: name })),
    h("span", { class: "note" }, `${what ?? ""} · ${app.t("model-facts", { parameters: millions(parameters) })}`)));
  return [h("h2", {}, app.t(models.length ? "choose-model" : "no-model")), h("ul", { class: "models" }, models)];
}

async function openView() {
  const { id, file } = VIEWS.find((one) => one.id === viewId());
  const turn = ++open.turn;
  close();
  document.body.dataset.view = id;
  document.body.classList.toggle("wide", !needsInput() || lacksModel());
  document.title = `${app.t(`view-${id}`)} · Vitreous`;
  const place = h("section", { class: `view ${id}`, "aria-label": app.t(`view-${id}`) });
  byId("view").replaceChildren(place);
  if (needsInput() && !app.input) {
    place.append(...waiting());
    return;
  }
  if (id === "lens" && !app.model.can.includes("lens")) {
    open.id = id;
    place.append(h("p", { class: "note" }, app.t("no-lens")));
    return;
  }
  try {
    const module = await import(file);
    if (turn !== open.turn) return;
    clear(place);
    [open.id, open.module] = [id, module];
    place.classList.add("opening");
    const reveal = setTimeout(() => place.classList.remove("opening"), MOST_HIDDEN_MS);
    await Promise.resolve(module.mount(place, app)).finally(() => {
      clearTimeout(reveal);
      place.classList.remove("opening");
    });
  } catch (error) {
    if (turn !== open.turn) return;
    place.replaceChildren(h("p", { class: "note" }, app.t("view-failed", { message: error.message })));
    if (!(error.status >= 0)) console.error(error);
  }
}

function close() {
  open.module?.unmount?.();
  [open.id, open.module] = [null, null];
}

app.on((change) => {
  if (change.has("input") || app.trouble) document.body.classList.remove("starting");
  if (["model", "models", "lang", "view"].some((name) => change.has(name))) drawFrame();
  if (["trouble", "lang", "view"].some((name) => change.has(name))) drawTrouble();
  for (const part of Object.values(parts)) part.update(change);
  const isAnother = viewId() !== open.id || change.has("lang") || change.has("model");
  if (isAnother && (open.id || ["view", "model", "lang", "input", "trouble"].some((name) => change.has(name)))) openView();
  else open.module?.update?.(change);
});

// Digits open views; `/` goes to the text; Escape in a field leaves it.
addEventListener("keydown", (event) => {
  const isTyping = event.target.matches?.("input, textarea, select, [contenteditable]");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && isTyping) event.target.blur();
  if (isTyping) return;
  const view = VIEWS[Number(event.key) - 1];
  if (view) choose(view.id);
  if (event.key === "/") {
    const field = document.querySelector("#give textarea");
    if (field) event.preventDefault(), field.focus();
  }
});
document.querySelector(".brand").addEventListener("click", (event) => {
  event.preventDefault();
  app.set({ view: "flow", step: null });
});

window.vitreous = app;
setTimeout(() => document.body.classList.remove("starting"), MOST_HIDDEN_MS);
drawFrame();
openView();
app.start().catch((error) => say(error.message));
