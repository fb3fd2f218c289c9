// Pieces of a vocabulary as the bytes of a text. Byte-level BPE (GPT-2 and most since) writes each byte as a letter of its own;
// SentencePiece writes a space as ▁ and single bytes as <0x0A>.

// The letters that stand for bytes: printable ones for themselves, the others from U+0100 on, in order.
const BYTES = new Map();
for (let byte = 0, next = 256; byte < 256; byte++) {
  const isItself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  BYTES.set(String.fromCharCode(isItself ? byte : next++), byte);
}

const encoder = new TextEncoder();

// Whether the pieces of the model that is shown are bytes: an é is a letter in one vocabulary, and the byte E9 in another.
let areBytes = true;
export const setByteLevel = (are) => { areBytes = are ?? true; };

export function bytesOf(piece, isByteLevel = areBytes) {
  const single = piece.match(/^<0x([0-9A-F]{2})>$/);
  if (single) return [Number.parseInt(single[1], 16)];
  if (isByteLevel && [...piece].every((letter) => BYTES.has(letter))) return [...piece].map((letter) => BYTES.get(letter));
  return [...encoder.encode(piece.replaceAll("\u2581", " "))];
}

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

// A piece as its letters; of a letter that is not whole, each byte as \xE4.
export function lettersOf(piece) {
  const bytes = Uint8Array.from(bytesOf(piece));
  try {
    return strict.decode(bytes);
  } catch {
    return brokenLetters(bytes);
  }
}

function brokenLetters(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length;) {
    const size = bytes[at] < 0x80 ? 1 : bytes[at] < 0xe0 ? 2 : bytes[at] < 0xf0 ? 3 : 4;
    try {
      text += strict.decode(bytes.subarray(at, at + size));
      at += size;
    } catch {
      text += hex(bytes[at++]);
    }
  }
  return text;
}

export const hex = (byte) => `\\x${byte.toString(16).toUpperCase().padStart(2, "0")}`;

// What of a letter is not there yet is shown as a mark, until it is.
export const textOf = (bytes) => new TextDecoder().decode(Uint8Array.from(bytes));

// A token that is no text: the end of one, or a mark of a chat.
export const isMark = (piece) => /^(<\|.*\|>|<\/?s>|<(eos|bos|pad|unk)>|\[[A-Z]+\])$/.test(piece);
