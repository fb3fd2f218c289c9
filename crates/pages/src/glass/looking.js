// Looks at a model: those of one moment become one request, a slot has one under way, and answers are kept.

import { decode, post } from "./api.js";

const MOST_BYTES = 48 << 20;

export class Looking {
  #open = new Map(); // requests that are being put together
  #slots = new Map();
  #kept = new Map();
  #bytes = 0;

  // What a want gets: the header's fields, and the arrays that belong to it.
  look(target, want, slot) {
    if (!slot) return this.#ask(target, want);
    const line = this.#slots.get(slot) ?? { isBusy: false, next: null };
    this.#slots.set(slot, line);
    line.next?.done(null);
    return new Promise((done, failed) => {
      line.next = { target, want, done, failed };
      if (!line.isBusy) this.#advance(line);
    });
  }

  async #advance(line) {
    while (line.next) {
      const { target, want, done, failed } = line.next;
      [line.next, line.isBusy] = [null, true];
      await this.#ask(target, want).then(done, failed);
      line.isBusy = false;
    }
  }

  #ask(target, want) {
    const place = JSON.stringify(target);
    const key = `${place} ${JSON.stringify(want)}`;
    const kept = this.#kept.get(key);
    if (kept) {
      this.#kept.delete(key);
      this.#kept.set(key, kept);
      return Promise.resolve(kept.answer);
    }
    return this.#join(place, target, want).then((answer) => {
      this.#keep(key, answer);
      return answer;
    });
  }

  // One request for all that is asked before this moment is over, unless two want different things of one name.
  #join(place, target, want) {
    const clashes = (one) => Object.entries(want).some(([name, of]) => name !== "values" && name in one.want && JSON.stringify(one.want[name]) !== JSON.stringify(of));
    let open = (this.#open.get(place) ?? []).find((one) => !clashes(one));
    if (!open) {
      open = { want: {} };
      open.answer = new Promise((done) => setTimeout(done)).then(() => {
        this.#open.set(place, (this.#open.get(place) ?? []).filter((one) => one !== open));
        if (!this.#open.get(place).length) this.#open.delete(place);
        return this.#send(target, open.want);
      });
      this.#open.set(place, [...(this.#open.get(place) ?? []), open]);
    }
    const { values, ...rest } = want;
    Object.assign(open.want, rest);
    const first = open.want.values?.length ?? 0;
    if (values) open.want.values = [...(open.want.values ?? []), ...values];
    return open.answer.then((whole) => part(whole, want, first));
  }

  async #send({ model, input, edits }, want) {
    const response = await post(`/glass/${encodeURIComponent(model)}/look`, { input, edits, want });
    return decode(await response.arrayBuffer());
  }

  #keep(key, answer) {
    const bytes = 2000 + Object.values(answer.arrays).reduce((sum, array) => sum + array.data.byteLength, 0) + answer.values.reduce((sum, array) => sum + array.data.byteLength, 0);
    if (bytes > MOST_BYTES / 4) return;
    this.#kept.set(key, { answer, bytes });
    this.#bytes += bytes;
    for (const [oldest, { bytes }] of this.#kept) {
      if (this.#bytes <= MOST_BYTES) break;
      this.#kept.delete(oldest);
      this.#bytes -= bytes;
    }
  }

  forget() {
    this.#kept.clear();
    this.#bytes = 0;
  }
}

// Of a whole answer what one want asked for. `values` come in the order in which they were asked, the others by their names.
function part({ header, arrays }, want, first) {
  const { arrays: _, ...fields } = header;
  const asked = want.values?.length ?? 0;
  const values = arrays.filter((array) => array.from === "values").slice(first, first + asked);
  const others = arrays.filter((array) => array.from in want && array.from !== "values");
  return { header, ...fields, values, arrays: Object.fromEntries([...values, ...others].map((array) => [array.name, array])) };
}
