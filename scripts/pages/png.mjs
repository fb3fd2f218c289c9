// A PNG of one colour per pixel, written here: `pixel(x, y)` gives red, green and blue, or one grey.

import { deflateSync } from "node:zlib";

const CRCS = Array.from({ length: 256 }, (_, n) => {
  let value = n;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? 0xedb88320 ^ (value >>> 1) : value >>> 1;
  return value >>> 0;
});

function part(type, data) {
  const named = Buffer.concat([Buffer.from(type), data]);
  const crc = named.reduce((value, byte) => CRCS[(value ^ byte) & 255] ^ (value >>> 8), 0xffffffff) ^ 0xffffffff;
  const out = Buffer.alloc(8);
  out.writeUInt32BE(data.length);
  out.writeUInt32BE(crc >>> 0, 4);
  return Buffer.concat([out.subarray(0, 4), named, out.subarray(4)]);
}

function file(side, kind, rows) {
  const head = Buffer.alloc(13);
  head.writeUInt32BE(side);
  head.writeUInt32BE(side, 4);
  head[8] = 8;
  head[9] = kind;
  return Buffer.concat([Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]), part("IHDR", head), part("IDAT", deflateSync(rows, { level: 1 })), part("IEND", Buffer.alloc(0))]);
}

// All grey: as small as its numbers are dull.
export const grey = (side) => file(side, 0, Buffer.alloc(side * (side + 1)));

export function coloured(side, pixel) {
  const row = (y) => [0, ...Array.from({ length: side }, (_, x) => pixel(x, y)).flat()];
  return file(side, 2, Buffer.from(Array.from({ length: side }, (_, y) => row(y)).flat()));
}
