// What the page knows: the model, the input, what is changed inside. Views ask it for values; whoever listens hears what changed.

import { read, usual, write } from "./address.js";
import { Trouble, events, json, request, setKey } from "./api.js";
import { exampleOf, examplesOf, isFile, modality, textOf } from "./examples.js";
import { Inputs } from "./inputs.js";
import { Looking } from "./looking.js";
import { language, translate } from "./strings.js";
import { setByteLevel } from "./tour/pieces.js";

// Pictures as the model sees them, graphs of inputs of different lengths, and dropped files, of each the last ones.
const KEEP = 32;
// Browsers refuse to have the address changed at every step of a slider.
const ADDRESS_MS = 200;
const REGIVE = ["model", "text", "pair", "example", "was", "was-pair"];

export class App {
  state = { ...usual(), ...read(location.hash) };
  models = [];
  model = null;
  // Records of what is looked at now, before anything was painted or rewritten, and beside it.
  input = null;
  base = null;
  other = null;
  // What was painted over a picture: `{ of, blob }`, the picture and the same with what covers it.
  painted = null;
  // What the model says now, what it said before anything was changed, and the command line that does the same (null: there is none).
  answer = null;
  answerBefore = null;
  command = "";
  // `null`: all is well; otherwise what the shell says.
  trouble = null;

  #listeners = new Set();
  #looking = new Looking();
  #inputs = new Inputs();
  #graphs = new Map();
  #pictures = new Map();
  // Dropped files by the names that they have in the address. They are in this tab alone.
  #dropped = new Map();
  #frames = new Set();
  #turn = 0;
  #back = null;
  #askKey = null;
  #writing = null;
  #reopening = null;

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
    if (!names.length) return false;
    if (names.includes("model")) change = { ...this.#forModel(change.model), ...change };
    this.state = { ...this.state, ...change };
    clearTimeout(this.#writing);
    if (replace) this.#writing = setTimeout(() => this.#write("replaceState"), ADDRESS_MS);
    else this.#write("pushState");
    this.#changed(Object.keys(change));
    return true;
  }

  #write(how) {
    const address = write(this.state);
    if (address !== location.hash) history[how](null, "", address);
  }

  // What stays when another model is chosen: a picture or a sound, and a text where both models do the same with it.
  #forModel(name) {
    const model = this.models.find((one) => one.name === name);
    const isAlike = (one, other) => (isFile(one) ? modality(one) === modality(other) : one.takes === other.takes && one.gives === other.gives);
    const keeps = model && this.model && isAlike(model, this.model);
    const cleared = { edits: [], token: null, layer: null, head: null, group: null, was: null, "was-pair": null };
    return keeps ? cleared : { ...cleared, text: null, pair: null, example: null };
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
    this.#adopt((await this.#patient(() => json("/glass/models"))).models);
  }

  // A model that is as it was stays the same object: views of it need not be built again.
  #adopt(models) {
    const known = new Map(this.models.map((model) => [JSON.stringify(model), model]));
    this.models = models.map((model) => known.get(JSON.stringify(model)) ?? model);
    this.tell(["models"]);
  }

  async reload() {
    this.#forget();
    this.trouble = null;
    await this.#loadModels();
    await this.renew();
  }

  #forget() {
    this.#looking.forget();
    this.#inputs.forget();
    this.#graphs.clear();
    this.#pictures.clear();
  }

  // Gives what is chosen now: the model's answer follows.
  async renew() {
    const turn = ++this.#turn;
    const model = this.models.find((one) => one.name === this.state.model) ?? (this.state.model ? null : this.models[0]);
    if (model !== this.model) {
      [this.model, this.input, this.base, this.answer, this.answerBefore, this.painted] = [model, null, null, null, null, null];
      setByteLevel(model?.byte_level);
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
      const before = this.#asItWas(what);
      // Another picture has nothing painted over it.
      if (this.painted?.of !== what.blob) this.painted = null;
      const now = this.painted ? { blob: this.painted.blob } : what;
      const [base, input] = await Promise.all([this.give(before, model), this.give(now, model), this.#giveOther(true)]);
      if (turn !== this.#turn) return;
      this.#fail(null);
      [this.base, this.input] = [base, input];
      this.tell(["input"]);
    } catch (error) {
      if (turn === this.#turn && error.code !== "model_not_found") this.#fail({ kind: "input", message: error.message });
    }
  }

  // Before a token of the text, or of what stands beside it, was rewritten.
  #asItWas(what) {
    const { was, "was-pair": wasPair } = this.state;
    if (what.text === undefined || (was === null && wasPair === null)) return what;
    return { ...what, text: was ?? what.text, ...(wasPair !== null && { pair: wasPair }) };
  }

  // The text, example or dropped thing that the state names; the first example where it names nothing.
  async #what(model) {
    const { text, pair, example } = this.state;
    if (text !== null && !isFile(model)) return textOf(model, text, pair);
    if (example) {
      const found = this.#droppedOf(model, example) ?? (await exampleOf(model, example));
      if (found) return found;
    }
    const first = examplesOf(model)[0];
    return first ? exampleOf(model, first.id) : null;
  }

  async #giveOther(isQuiet = false) {
    const { model: name, text, example } = this.state.other ?? {};
    const model = this.models.find((one) => one.name === name) ?? this.model;
    let what = null;
    if (model && text !== undefined && !isFile(model)) what = textOf(model, text, this.state.pair);
    else if (model && example) what = this.#droppedOf(model, example) ?? (await exampleOf(model, example));
    try {
      this.other = what && model ? await this.give(what, model) : null;
    } catch (error) {
      this.other = null;
      this.say(error.message);
    }
    if (!isQuiet) this.tell(["other-input"]);
  }

  // A picture or sound that was dropped, in place of the one before.
  hold(blob) {
    this.set({ example: this.#drop(blob), text: null, edits: [], token: null });
  }

  holdOther(blob) {
    this.set({ other: { ...this.state.other, example: this.#drop(blob), text: undefined } }, { replace: true });
  }

  // The name of a dropped file: none that a file had before the page was loaded again.
  #drop(blob) {
    const name = `dropped-${Date.now().toString(36)}`;
    this.#dropped.set(name, { kind: modality(this.model), what: { blob } });
    if (this.#dropped.size > KEEP) this.#dropped.delete(this.#dropped.keys().next().value);
    return name;
  }

  #droppedOf(model, name) {
    const dropped = this.#dropped.get(name);
    return dropped?.kind === modality(model) ? dropped.what : null;
  }

  // An example in place of what was there, without what was painted over it.
  pick(example) {
    this.painted = null;
    const pair = this.model.takes === "image_text" ? this.state.pair : null;
    if (!this.set({ example, text: null, pair, was: null, "was-pair": null, token: null })) this.renew();
  }

  // Another version of the picture that was given; `null` takes it back.
  paint(blob) {
    this.painted = blob && { of: this.base.what.blob, blob };
    return this.renew();
  }

  async show(what) {
    if (what.blob) this.hold(what.blob);
    else this.set({ text: what.text, pair: what.pair ?? null, example: null, was: null, "was-pair": null });
  }

  #fail(trouble) {
    if (!trouble && !this.trouble) return;
    this.trouble = trouble;
    this.tell(["trouble"]);
  }

  give(what, model = this.model) {
    return this.#patient(() => this.#inputs.give(model, what));
  }

  // ---- Values.

  async look(want, { model = this.model, input = this.input, edits = this.state.edits, slot } = {}) {
    if (!model || !input) return null;
    const { other } = this;
    const done = edits.filter((edit) => edit.do !== "from" || other);
    const named = () => ({ model: model.name, input: input.input, edits: done.map((edit) => (edit.do === "from" ? { ...edit, input: other.input } : edit)) });
    const { patching } = want;
    const wanted = () => (patching ? { ...want, patching: { ...patching, other: patching.other.input } } : want);
    const records = [input, patching?.other, done.some((edit) => edit.do === "from") ? other : null];
    return this.#about(records, () => this.#looking.look(named(), wanted(), slot));
  }

  // The stages of a model. They follow from the lengths of an input.
  graph(model = this.model, input = this.input) {
    const address = () => `/glass/${encodeURIComponent(model.name)}/graph?input=${encodeURIComponent(input.input)}`;
    return kept(this.#graphs, `${model.name} ${input.lengths}`, () => this.#about([input], () => json(address())));
  }

  // The picture as the model sees it, as an address for an `img`.
  seen(model = this.model, input = this.input) {
    const path = () => `/glass/${encodeURIComponent(model.name)}/inputs/${encodeURIComponent(input.input)}/seen`;
    return kept(this.#pictures, `${model.name} ${input.input}`, () => this.#about([input], async () => URL.createObjectURL(await (await request(path())).blob())),
      (address) => URL.revokeObjectURL(address));
  }

  // Asks about inputs. Those that the server has forgotten are given again, and it is asked once more.
  #about(records, ask) {
    return this.#patient(async () => {
      try {
        return await ask();
      } catch (error) {
        if (error.status !== 410) throw error;
        const isAnother = await Promise.all(records.filter(Boolean).map((record) => this.#inputs.again(record)));
        if (isAnother.some(Boolean)) this.#reopened();
        return ask();
      }
    });
  }

  // The server has opened its models anew: nothing that was seen before holds.
  #reopened() {
    this.#reopening ??= (async () => {
      this.#forget();
      await this.#loadModels();
      await this.renew();
    })().finally(() => { this.#reopening = null; });
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
          this.#adopt(models.models);
          break;
        }
      }
      this.#back = null;
      this.#looking.forget();
      this.#fail(null);
      this.say(this.t("back"));
    })();
    return this.#back;
  }

  async #unloaded() {
    const name = this.model?.name;
    const { models } = await json("/glass/models").catch(() => ({ models: [] }));
    this.#adopt(models);
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
  // Of a sound, attention tells most by the moments at which each token was heard.
  get group() {
    const named = (name) => this.model?.groups?.find((one) => one.name === name);
    return named(this.state.group) ?? (this.model?.takes === "audio" && this.state.view === "attention" ? named("cross") : null) ?? this.model?.groups?.[0] ?? null;
  }
  get layer() { return Math.min(this.state.layer ?? (this.group?.layers ?? 1) - 1, (this.group?.layers ?? 1) - 1); }
  get head() { return Math.min(Math.max(this.state.head ?? 0, 0), (this.group?.heads ?? 1) - 1); }
  get token() {
    const last = Math.max(0, this.tokenCount - 1);
    return Math.min(this.state.token ?? (this.input?.grid ? 0 : last), last);
  }
  get tokenCount() { return this.input?.tokens?.length || (this.input?.grid ? this.input.grid.prefix + this.input.grid.rows * this.input.grid.cols : 0); }
  get isChanged() { return this.state.edits.length > 0 || (this.input && this.base && this.input.input !== this.base.input); }
}

// The value of a key, made once. The oldest of many is dropped.
function kept(map, key, make, drop = () => {}) {
  if (!map.has(key)) {
    const made = make();
    map.set(key, made);
    made.catch(() => { if (map.get(key) === made) map.delete(key); });
    if (map.size > KEEP) {
      const [oldest, value] = map.entries().next().value;
      map.delete(oldest);
      value.then(drop, () => {});
    }
  }
  return map.get(key);
}

export const pathOf = (pattern, layer) => pattern.replace("#", String(layer));
