// Numbers that a page holds as text.

export function bytes(text) {
  const raw = atob(text);
  const out = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at++) out[at] = raw.charCodeAt(at);
  return out;
}

export const floats = (text) => new Float32Array(bytes(text).buffer);
// Two bytes each, so to 1/65535.
export const weightsOf = (text) => Float32Array.from(new Uint16Array(bytes(text).buffer), (share) => share / 65535);
