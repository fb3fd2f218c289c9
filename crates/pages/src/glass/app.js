// What the page knows: the model, the input, what is changed inside. Views ask it for values; whoever listens hears what changed.

import { read, usual, write } from "./address.js";
import { Trouble, events, json, request, setKey } from "./api.js";
import { exampleOf, examplesOf } from "./examples.js";
import { Looking } from "./looking.js";
import { language, translate } from "./strings.js";

const KEEP_INPUTS = 64;
// Browsers refuse to have the address changed at every step of a slider.
const ADDRESS_MS = 200;
const REGIVE = ["model", "text", "pair", "example", "was"];

export class App {
  state = { ...usual(), ...read(location.hash) };
  models = [];
  model = null;
  // Records of what is looked at now, before anything was painted or rewritten, and beside it.
  input = null;
  base = null;
  other = null;
  // A picture or sound that was dropped, and what was painted over it.
  held = null;
  painted = null;
  // What the model says now, what it said before anything was changed, and the command line that does the same (null: there is none).
  answer = null;
  answerBefore = null;
  command = "";
  // `null`: all is well; otherwise what the shell says.
  trouble = null;

  #listeners = new Set();
  #looking = new Looking();
  #given = new Map();
  #graphs = new Map();
  #pictures = new Map();
  #frames = new Set();
  #turn = 0;
  #back = null;
  #askKey = null;
  #writing = null;

  constructor({ askKey, say }) {
    this.#askKey = askKey;
    this.say = say;
    addEventListener("popstate", () => this.#arrive(read(location.hash)));
  }

  get lang() { return language(this.state.lang); }
  t(key, values) { return translate(this.lang, key, values); }
  on(listener) { this.#listeners.add(listener); }
  tell(names) {
    const change = new Set(names);
    for (const listener of this.#listeners) listener(change);
  }

  // ---- What is chosen.

  set(change, { replace = false } = {}) {
    const names = Object.keys(change).filter((name) => JSON.stringify(this.state[name]) !== JSON.stringify(change[name]));
    if (!names.length) return;
    if (names.includes("model")) change = { ...this.#forModel(change.model), ...change };
    this.state = { ...this.state, ...change };
    clearTimeout(this.#writing);
    if (replace) this.#writing = setTimeout(() => this.#write("replaceState"), ADDRESS_MS);
    else this.#write("pushState");
    this.#changed(Object.keys(change));
  }

  #write(how) {
    const address = write(this.state);
    if (address !== location.hash) history[how](null, "", address);
  }

  // What stays when another model is chosen: a text, if it reads texts.
  #forModel(name) {
    const model = this.models.find((one) => one.name === name);
    const keepsText = model && this.model && model.takes === this.model.takes && model.gives === this.model.gives;
    const cleared = { edits: [], token: null, layer: null, head: null, group: null, was: null };
    return keepsText ? cleared : { ...cleared, text: null, pair: null, example: null };
  }

  #arrive(state) {
    clearTimeout(this.#writing);
    const names = Object.keys(state).filter((name) => JSON.stringify(state[name]) !== JSON.stringify(this.state[name]));
    this.state = state;
    this.#changed(names);
  }

  #changed(names) {
    this.tell(names);
    if (this.model?.takes === "image_text") names = names.filter((name) => name !== "pair");
    if (names.some((name) => REGIVE.includes(name)) || !this.input) this.renew();
    else if (names.includes("other")) this.#giveOther();
  }

  link(change) { return write({ ...this.state, ...change }); }

  // Edits of one path are one edit: `null` takes it back.
  edit(path, edit, how) {
    const rest = this.state.edits.filter((one) => one.path !== path);
    this.set({ edits: edit ? [...rest, { path, ...edit }] : rest }, how);
  }

  edited(path) { return this.state.edits.find((one) => one.path === path) ?? null; }

  // ---- The models and the input.

  async start() {
    await this.#loadModels();
    await this.renew();
  }

  async #loadModels() {
    ({ models: this.models } = await this.#patient(() => json("/glass/models")));
    this.tell(["models"]);
  }

  async reload() {
    this.#looking.forget();
    this.#given.clear();
    this.#graphs.clear();
    this.trouble = null;
    await this.#loadModels();
    await this.renew();
  }

  // Gives what is chosen now: the model's answer follows.
  async renew() {
    const turn = ++this.#turn;
    const model = this.models.find((one) => one.name === this.state.model) ?? (this.state.model ? null : this.models[0]);
    if (model !== this.model) {
      [this.model, this.input, this.base, this.answer, this.answerBefore] = [model, null, null, null, null];
      this.tell(["model"]);
    }
    if (!model) {
      this.#fail(this.models.length ? { kind: "model", name: this.state.model } : { kind: "none" });
      return;
    }
    try {
      const what = await this.#what(model);
      if (turn !== this.#turn) return;
      if (!what) {
        this.input = this.base = null;
        this.#fail(null);
        this.tell(["input"]);
        return;
      }
      const before = this.state.was !== null && this.state.was !== undefined && what.text !== undefined ? { ...what, text: this.state.was } : what;
      const now = this.painted && what.blob ? { blob: this.painted } : what;
      const [base, input] = await Promise.all([this.give(before, model), this.give(now, model), this.#giveOther(true)]);
      if (turn !== this.#turn) return;
      this.#fail(null);
      [this.base, this.input] = [base, input];
      this.tell(["input"]);
    } catch (error) {
      if (turn === this.#turn && error.code !== "model_not_found") this.#fail({ kind: "input", message: error.message });
    }
  }

  // The text, example or dropped thing that the state names; the first example where it names nothing.
  async #what(model) {
    const { text, pair, example } = this.state;
    if (text !== null && !["image", "audio"].includes(model.takes)) return pair !== null ? { text, pair } : { text };
    if (this.held && this.held.kind === model.takes) return { blob: this.held.blob };
    if (example) {
      const found = await exampleOf(model, example);
      if (found) return found;
    }
    const first = examplesOf(model)[0];
    return first ? exampleOf(model, first.id) : null;
  }

  async #giveOther(isQuiet = false) {
    const { model: name, text, example } = this.state.other ?? {};
    const model = this.models.find((one) => one.name === name) ?? this.model;
    let what = null;
    if (this.otherHeld && model?.takes === this.otherHeld.kind) what = { blob: this.otherHeld.blob };
    else if (text !== undefined) what = { text };
    else if (example && model) what = await exampleOf(model, example);
    try {
      this.other = what && model ? await this.give(what, model) : null;
    } catch (error) {
      this.other = null;
      this.say(error.message);
    }
    if (!isQuiet) this.tell(["other-input"]);
  }

  // A picture or sound in place of the one before.
  hold(kind, blob, name) {
    this.held = { kind, blob, name };
    this.painted = null;
    this.set({ example: null, text: null, edits: [] });
    this.renew();
  }

  // An example in place of what was dropped.
  pick(example) {
    this.held = this.painted = null;
    this.set({ example, text: null, pair: null, was: null, token: null });
    this.renew();
  }

  holdOther(kind, blob, name) {
    this.otherHeld = { kind, blob, name };
    this.#giveOther();
  }

  paint(blob) {
    this.painted = blob;
    return this.renew();
  }

  async show(what) {
    if (what.blob) this.hold(this.model.takes, what.blob, what.name ?? "");
    else this.set({ text: what.text, pair: what.pair ?? null, example: null, was: null });
  }

  #fail(trouble) {
    if (!trouble && !this.trouble) return;
    this.trouble = trouble;
    this.tell(["trouble"]);
  }

  async give(what, model = this.model) {
    const key = `${model.name} ${what.blob ? `blob ${blobNumber(what.blob)}` : JSON.stringify(what)}`;
    if (!this.#given.has(key)) {
      this.#given.set(key, this.#patient(() => this.#send(what, model)));
      this.#given.get(key).catch(() => this.#given.delete(key));
      for (const old of this.#given.keys()) if (this.#given.size > KEEP_INPUTS) this.#given.delete(old);
    }
    return this.#given.get(key);
  }

  async #send(what, model) {
    const path = `/glass/${encodeURIComponent(model.name)}/inputs`;
    const [body, type] = what.blob ? [what.blob, what.blob.type || "application/octet-stream"] : [JSON.stringify(what), "application/json"];
    const record = await json(path, { method: "POST", body, type });
    return { ...record, what, model: model.name };
  }

  // ---- Values.

  async look(want, { model = this.model, input = this.input, edits = this.state.edits, slot } = {}) {
    if (!model || !input) return null;
    const wired = edits.map((edit) => (edit.do === "from" ? { ...edit, input: this.other?.input } : edit)).filter((edit) => edit.do !== "from" || edit.input);
    const target = { model: model.name, input: input.input, edits: wired };
    return this.#patient(async () => {
      try {
        return await this.#looking.look(target, want, slot);
      } catch (error) {
        if (error.status !== 410) throw error;
        await this.#send(input.what, model);
        return this.#looking.look(target, want, slot);
      }
    });
  }

  graph(model = this.model, input = this.input) {
    const key = `${model.name} ${input?.input}`;
    if (!this.#graphs.has(key)) {
      this.#graphs.set(key, this.get(`/glass/${encodeURIComponent(model.name)}/graph?input=${encodeURIComponent(input.input)}`));
      this.#graphs.get(key).catch(() => this.#graphs.delete(key));
    }
    return this.#graphs.get(key);
  }

  // The picture as the model sees it, as an address for an `img`.
  async seen(model = this.model, input = this.input) {
    const key = `${model.name} ${input.input}`;
    if (!this.#pictures.has(key)) {
      const path = `/glass/${encodeURIComponent(model.name)}/inputs/${encodeURIComponent(input.input)}/seen`;
      this.#pictures.set(key, this.#patient(async () => URL.createObjectURL(await (await request(path)).blob())));
      if (this.#pictures.size > KEEP_INPUTS) {
        const [oldest, url] = this.#pictures.entries().next().value;
        this.#pictures.delete(oldest);
        url.then((address) => URL.revokeObjectURL(address), () => {});
      }
    }
    return this.#pictures.get(key);
  }

  get(path) { return this.#patient(() => json(path)); }
  events(path, handlers, onGap) { return events(path, handlers, onGap); }

  // Waits for a server that went away or is loading, and asks for a key that is missing.
  async #patient(ask) {
    for (;;) {
      try {
        return await ask();
      } catch (error) {
        if (!(error instanceof Trouble)) throw error;
        if (error.status === 401) setKey(await this.#askKey(error.message));
        else if (error.status === 0 || error.status === 503) await this.#untilBack();
        else {
          if (error.status === 404 && error.code === "model_not_found") this.#unloaded();
          throw error;
        }
      }
    }
  }

  #untilBack() {
    this.#back ??= (async () => {
      this.#fail({ kind: "gone" });
      for (let wait = 700; ; wait = Math.min(1.5 * wait, 4000)) {
        await new Promise((done) => setTimeout(done, wait));
        const models = await json("/glass/models").catch((error) => (error.status === 401 ? { models: this.models } : null));
        if (models) {
          this.models = models.models;
          break;
        }
      }
      this.#back = null;
      this.#looking.forget();
      this.#fail(null);
      this.tell(["models"]);
      this.say(this.t("back"));
    })();
    return this.#back;
  }

  async #unloaded() {
    const name = this.model?.name;
    const { models } = await json("/glass/models").catch(() => ({ models: [] }));
    this.models = models;
    this.tell(["models"]);
    if (!models.some((model) => model.name === name)) this.#fail({ kind: "model", name });
  }

  // ---- For views.

  // Runs `draw` in the next frame, once however often it is asked.
  frame(draw) {
    if (this.#frames.has(draw)) return;
    this.#frames.add(draw);
    requestAnimationFrame((time) => {
      this.#frames.delete(draw);
      draw(time);
    });
  }

  style(path) {
    const address = new URL(path, import.meta.url).href;
    const there = [...document.querySelectorAll("link[rel=stylesheet]")].find((link) => link.href === address);
    if (there) return Promise.resolve();
    return new Promise((done) => {
      const link = Object.assign(document.createElement("link"), { rel: "stylesheet", href: address, onload: done, onerror: done });
      document.head.append(link);
    });
  }

  // The numbers of the group of layers that is looked at, and the layer and head within it.
  get group() { return this.model?.groups?.find((one) => one.name === this.state.group) ?? this.model?.groups?.[0] ?? null; }
  get layer() { return Math.min(this.state.layer ?? (this.group?.layers ?? 1) - 1, (this.group?.layers ?? 1) - 1); }
  get head() { return Math.min(Math.max(this.state.head ?? 0, 0), (this.group?.heads ?? 1) - 1); }
  get token() {
    const last = Math.max(0, this.tokenCount - 1);
    return Math.min(this.state.token ?? (this.input?.grid ? 0 : last), last);
  }
  get tokenCount() { return this.input?.tokens?.length || (this.input?.grid ? this.input.grid.prefix + this.input.grid.rows * this.input.grid.cols : 0); }
  get isChanged() { return this.state.edits.length > 0 || (this.input && this.base && this.input.input !== this.base.input); }
}

const blobs = new WeakMap();
let blobCount = 0;
function blobNumber(blob) {
  if (!blobs.has(blob)) blobs.set(blob, ++blobCount);
  return blobs.get(blob);
}

export const pathOf = (pattern, layer) => pattern.replace("#", String(layer));
