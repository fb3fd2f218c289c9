// Arrays of an `.npz` file, as `vitreous explain --arrays` writes it: a ZIP of `.npy` files, 32-bit floats or integers.

import { inflateRawSync } from "node:zlib";

export function arraysOf(file) {
  const arrays = {};
  const end = file.lastIndexOf(Buffer.from("PK\x05\x06", "latin1"));
  let at = file.readUInt32LE(end + 16);
  for (let entry = file.readUInt16LE(end + 10); entry > 0; entry--) {
    const [method, packed, name, extra, comment, place] = [file.readUInt16LE(at + 10), file.readUInt32LE(at + 20), file.readUInt16LE(at + 28), file.readUInt16LE(at + 30), file.readUInt16LE(at + 32), file.readUInt32LE(at + 42)];
    const title = file.toString("utf8", at + 46, at + 46 + name).replace(/\.npy$/, "");
    const start = place + 30 + file.readUInt16LE(place + 26) + file.readUInt16LE(place + 28);
    const bytes = file.subarray(start, start + packed);
    arrays[title] = arrayOf(method ? inflateRawSync(bytes) : bytes);
    at += 46 + name + extra + comment;
  }
  return arrays;
}

function arrayOf(bytes) {
  const header = bytes.readUInt16LE(8);
  const text = bytes.toString("latin1", 10, 10 + header);
  const shape = text.match(/'shape': \(([^)]*)\)/)[1].split(",").map((size) => size.trim()).filter(Boolean).map(Number);
  const content = bytes.subarray(10 + header);
  const aligned = content.buffer.slice(content.byteOffset, content.byteOffset + content.byteLength);
  return { shape, data: text.includes("'<f4'") ? new Float32Array(aligned) : text.includes("'<i8'") ? BigInt64Array.from(new BigInt64Array(aligned)) : new Int32Array(aligned) };
}
