// Requests to the server that this page came from: JSON, binary answers, server-sent events. The key of a server that wants one
// stays in this tab.

// A request that was refused (`status`), or had no answer (status 0).
export class Trouble extends Error {
  constructor(status, message, code = null) {
    super(message);
    [this.status, this.code] = [status, code];
  }
}

const KEY = "vitreous-key";

export function setKey(key) {
  sessionStorage.setItem(KEY, key);
}

function headersOf(type) {
  const key = sessionStorage.getItem(KEY);
  return { ...(key && { Authorization: `Bearer ${key}` }), ...(type && { "Content-Type": type }) };
}

export async function request(path, { method = "GET", body, type, signal } = {}) {
  let response;
  try {
    response = await fetch(path, { method, body, signal, headers: headersOf(type), cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Trouble(0, "no answer");
  }
  if (response.ok) return response;
  const said = await response.json().catch(() => null);
  throw new Trouble(response.status, said?.error?.message ?? response.statusText, said?.error?.code);
}

export const json = async (path, options) => (await request(path, options)).json();

export const post = (path, value) => request(path, { method: "POST", body: JSON.stringify(value), type: "application/json" });

// A header in JSON, then arrays: each becomes a view of the same bytes.
export function decode(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const start = Math.ceil((4 + length) / 8) * 8;
  const arrays = (header.arrays ?? []).map((array) => {
    const count = array.shape.reduce((product, size) => product * size, 1);
    const Kind = array.type === "u8" ? Uint8Array : Float32Array;
    return { ...array, data: new Kind(buffer, start + array.offset, count) };
  });
  return { header, arrays };
}

// Events of a stream, each to the handler of its name. Where the stream breaks off, it is opened again.
export function events(path, handlers, onGap) {
  const stop = new AbortController();
  let last = null;
  const read = async () => {
    for (let wait = 500; !stop.signal.aborted; wait = Math.min(2 * wait, 8000)) {
      try {
        const headers = { ...headersOf(), Accept: "text/event-stream", ...(last && { "Last-Event-ID": last }) };
        const response = await fetch(path, { headers, signal: stop.signal, cache: "no-store" });
        if (!response.ok) throw new Trouble(response.status, response.statusText);
        wait = 500;
        await eachEvent(response.body, ({ name, data, id }) => {
          last = id ?? last;
          handlers[name]?.(JSON.parse(data));
        });
      } catch (error) {
        if (stop.signal.aborted || error.status === 404) return;
      }
      onGap?.();
      await new Promise((done) => setTimeout(done, wait));
    }
  };
  read();
  return () => stop.abort();
}

async function eachEvent(body, handle) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const whole = text.split(/\r?\n\r?\n/);
    text = whole.pop();
    for (const one of whole) {
      const event = { name: "message", data: [], id: null };
      for (const line of one.split(/\r?\n/)) {
        const [, field, rest] = line.match(/^(\w+): ?(.*)$/) ?? [];
        if (field === "event") event.name = rest;
        if (field === "data") event.data.push(rest);
        if (field === "id") event.id = rest;
      }
      if (event.data.length) handle({ ...event, data: event.data.join("\n") });
    }
  }
}
