// What is looked at, as the part of the address behind `#`, and back. An address of nonsense opens what is usual.

const NUMBERS = ["token", "layer", "head"];
const TEXTS = ["model", "view", "text", "pair", "was", "was-pair", "example", "group", "step"];
const OTHER = ["model", "text", "example"];
const MOST_EDITS = 256;

export const usual = () => ({
  model: null, view: null, text: null, pair: null, was: null, "was-pair": null, example: null, group: null, step: null,
  token: null, layer: null, head: null, edits: [], other: {}, lang: null,
});

// `blocks.3.attention.heads.5@0+3:scale:0.5`
export function editToText({ path, tokens, ...edit }) {
  const place = tokens?.length ? `${path}@${tokens.join("+")}` : path;
  const how = { scale: () => `scale:${edit.factor}`, clamp: () => `clamp:${edit.low}:${edit.high}`, zero: () => "zero", from: () => "from" }[edit.do];
  return `${place}:${how()}`;
}

export function editOfText(text) {
  const [place, kind, ...numbers] = text.split(":");
  const [path, at] = place.split("@");
  const tokens = at?.split("+").map(Number).filter(Number.isInteger);
  const [first, second] = numbers.map(Number);
  const edit = {
    zero: () => ({ do: "zero" }),
    from: () => ({ do: "from" }),
    scale: () => Number.isFinite(first) && { do: "scale", factor: first },
    clamp: () => Number.isFinite(first) && Number.isFinite(second) && { do: "clamp", low: first, high: second },
  }[kind]?.();
  return edit && /^[\w.]+$/.test(path) ? { path, ...edit, ...(tokens?.length && { tokens }) } : null;
}

export function write(state) {
  const fields = new URLSearchParams();
  for (const name of TEXTS) if (state[name] !== null && state[name] !== undefined && state[name] !== "") fields.set(name, state[name]);
  for (const name of NUMBERS) if (Number.isInteger(state[name])) fields.set(name, state[name]);
  for (const name of OTHER) if (state.other?.[name]) fields.set(`other-${name}`, state.other[name]);
  if (state.edits.length) fields.set("edits", state.edits.map(editToText).join(","));
  if (state.lang) fields.set("lang", state.lang);
  return `#${fields}`.replaceAll("%3A", ":").replaceAll("%2C", ",").replaceAll("%40", "@");
}

export function read(hash) {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const state = usual();
  for (const name of TEXTS) state[name] = fields.get(name);
  for (const name of NUMBERS) {
    const number = Number(fields.get(name) ?? NaN);
    state[name] = Number.isInteger(number) && number >= -1 ? number : null;
  }
  for (const name of OTHER) if (fields.get(`other-${name}`)) state.other[name] = fields.get(`other-${name}`);
  state.edits = (fields.get("edits") ?? "").split(",").filter(Boolean).slice(0, MOST_EDITS).map(editOfText).filter(Boolean);
  state.lang = ["en", "zh"].includes(fields.get("lang")) ? fields.get("lang") : null;
  return state;
}
