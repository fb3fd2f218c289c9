// What models were given. The server names each input, and forgets it when it starts again, when its model is loaded again, or when others
// need the room. A record knows what was given, so that it can be given again: it then has the name that the server has for it now.

import { json } from "./api.js";

const KEEP = 64;

export class Inputs {
  #kept = new Map();
  #again = new Map();

  // `what`: `{ blob }`, or a text with what belongs to it. The same has the same record.
  give(model, what) {
    const key = `${model.name} ${what.blob ? `blob ${numberOf(what.blob)}` : JSON.stringify(what)}`;
    const known = this.#kept.get(key);
    if (known) return known;
    const given = send(model.name, what).then((fresh) => ({ ...fresh, what, model: model.name }));
    this.#kept.set(key, given);
    given.catch(() => this.#kept.delete(key));
    if (this.#kept.size > KEEP) this.#kept.delete(this.#kept.keys().next().value);
    return given;
  }

  // Gives a record's input again. Gives whether its name is another one: then the model was opened anew.
  again(record) {
    if (!this.#again.has(record)) {
      const was = record.input;
      const giving = send(record.model, record.what).then((fresh) => Object.assign(record, fresh).input !== was);
      this.#again.set(record, giving.finally(() => this.#again.delete(record)));
    }
    return this.#again.get(record);
  }

  forget() { this.#kept.clear(); }
}

function send(model, what) {
  const [body, type] = what.blob ? [what.blob, what.blob.type || "application/octet-stream"] : [JSON.stringify(what), "application/json"];
  return json(`/glass/${encodeURIComponent(model)}/inputs`, { method: "POST", body, type });
}

const blobs = new WeakMap();
let blobCount = 0;
function numberOf(blob) {
  if (!blobs.has(blob)) blobs.set(blob, ++blobCount);
  return blobs.get(blob);
}
