// Pieces of a vocabulary as the bytes of a text. Byte-level BPE (GPT-2 and most since) writes each byte as a letter of its own;
// SentencePiece writes a space as ▁ and single bytes as <0x0A>.

// The letters that stand for bytes: printable ones for themselves, the others from U+0100 on, in order.
const BYTES = new Map();
for (let byte = 0, next = 256; byte < 256; byte++) {
  const isItself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  BYTES.set(String.fromCharCode(isItself ? byte : next++), byte);
}

const encoder = new TextEncoder();

export function bytesOf(piece) {
  const single = piece.match(/^<0x([0-9A-F]{2})>$/);
  if (single) return [Number.parseInt(single[1], 16)];
  if ([...piece].every((letter) => BYTES.has(letter))) return [...piece].map((letter) => BYTES.get(letter));
  return [...encoder.encode(piece.replaceAll("\u2581", " "))];
}

// What of a letter is not there yet is shown as a mark, until it is.
export const textOf = (bytes) => new TextDecoder().decode(Uint8Array.from(bytes));

// A token that is no text: the end of one, or a mark of a chat.
export const isMark = (piece) => /^(<\|.*\|>|<\/?s>|<(eos|bos|pad|unk)>|\[[A-Z]+\])$/.test(piece);
