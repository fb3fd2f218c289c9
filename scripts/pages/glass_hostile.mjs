// What should not happen, and does: a picture of 100 megapixels, a text of a megabyte, a server that goes away and comes back, a model
// that is no longer there, two tabs.

import { join } from "node:path";
import { deflateSync } from "node:zlib";
import { changed, drop, Kit, serve } from "./kit.mjs";

export const checks = [
  ["a picture of 100 megapixels is scaled down", hugePicture],
  ["a text of a megabyte is cut", hugeText],
  ["what is no picture is refused with a sentence", noPicture],
  ["two tabs do not know of each other", twoTabs],
  ["a server goes away and comes back, without a model", serverGone],
];

// A grey PNG of one colour, as small as its numbers are dull.
function png(side) {
  const crcs = Array.from({ length: 256 }, (_, n) => {
    let value = n;
    for (let bit = 0; bit < 8; bit++) value = value & 1 ? 0xedb88320 ^ (value >>> 1) : value >>> 1;
    return value >>> 0;
  });
  const part = (type, data) => {
    const named = Buffer.concat([Buffer.from(type), data]);
    const crc = named.reduce((value, byte) => crcs[(value ^ byte) & 255] ^ (value >>> 8), 0xffffffff) ^ 0xffffffff;
    const out = Buffer.alloc(8);
    out.writeUInt32BE(data.length);
    out.writeUInt32BE(crc >>> 0, 4);
    return Buffer.concat([out.subarray(0, 4), named, out.subarray(4)]);
  };
  const head = Buffer.alloc(13);
  head.writeUInt32BE(side);
  head.writeUInt32BE(side, 4);
  head[8] = 8;
  return Buffer.concat([Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]), part("IHDR", head), part("IDAT", deflateSync(Buffer.alloc(side * (side + 1), 0), { level: 1 })), part("IEND", Buffer.alloc(0))]);
}

async function hugePicture(kit) {
  const page = await kit.page("#model=small");
  const before = await page.evaluate(() => vitreous.input.input);
  await drop(page, { name: "huge.png", type: "image/png", bytes: png(10_000) });
  await changed(page, () => vitreous.input.input, before, 60_000);
  await kit.settled(page);
  const said = await page.locator("#give .note").textContent();
  const sent = await page.evaluate(() => vitreous.input.what.blob.size);
  const faults = said.includes("10000×10000") ? [] : [`“${said}” does not say what was scaled`];
  if (sent > 4 << 20) faults.push(`${sent} bytes were sent`);
  return faults;
}

async function hugeText(kit) {
  const page = await kit.page("#model=lm");
  const before = await page.evaluate(() => vitreous.input.input);
  await page.evaluate(() => {
    const field = document.querySelector("#give textarea");
    field.focus();
    field.value = "once upon a time ".repeat(60_000);
    field.dispatchEvent(new Event("input"));
  });
  await changed(page, () => document.querySelector("#give .note").textContent, "", 20_000);
  await kit.settled(page);
  const { letters, note, hasMoved } = await page.evaluate((before) => ({ letters: document.querySelector("#give textarea").value.length, note: document.querySelector("#give .note").textContent, hasMoved: vitreous.input?.input !== before || Boolean(vitreous.trouble) }), before);
  const faults = letters < 30_000 && note.includes("cut") ? [] : [`${letters} letters are left: “${note}”`];
  if (!hasMoved) faults.push("neither an answer nor a refusal follows");
  // A refusal for its length is a message, not the end.
  kit.wrongOf(page);
  await page.locator("#give textarea").fill("Once upon");
  await changed(page, () => vitreous.input?.what.text === "Once upon" && !vitreous.trouble ? "yes" : "", "");
  return faults;
}

async function noPicture(kit) {
  const page = await kit.page("#model=small");
  await drop(page, { name: "letter.png", type: "image/png", bytes: Buffer.from("this is no picture") });
  const said = await changed(page, () => document.querySelector("#give .note").textContent, "Reading …");
  await drop(page, { name: "talk.wav", type: "audio/wav", bytes: Buffer.from("RIFF") });
  const other = await changed(page, () => document.querySelector("#give .note").textContent, said);
  kit.wrongOf(page);
  return said.includes("no picture") && other.includes("talk.wav") ? [] : [`“${said}”, “${other}”`];
}

async function twoTabs(kit) {
  const first = await kit.page("#model=small&example=clothes-0");
  const second = await first.context().newPage();
  await second.goto(`${kit.server.address}/#model=small&example=clothes-2&edits=blocks.0.mlp:zero`);
  await changed(second, () => globalThis.vitreous?.answer?.top[0].label ?? "", "");
  await first.evaluate(() => vitreous.set({ edits: [{ path: "blocks.1.mlp", do: "zero" }] }));
  await kit.settled(first);
  const [one, two] = [await first.evaluate(() => vitreous.state), await second.evaluate(() => vitreous.state)];
  return one.example === "clothes-0" && two.example === "clothes-2" && two.edits[0].path === "blocks.0.mlp" ? [] : ["the tabs share what is looked at"];
}

async function serverGone(kit) {
  const lm = `lm=${join(kit.root, kit.fixtures.lm)}`;
  const server = await serve(kit.vitreous, ["builtin:small", lm, "--port", "0"]);
  const own = new Kit({ ...kit, server });
  own.browser = kit.browser;
  const page = await own.page("#model=lm&text=Once upon");
  const port = new URL(server.address).port;
  await server.stop();
  await page.locator("#give textarea").fill("Once upon a time");
  await page.waitForSelector("#banner.gone", { state: "visible" });
  // It comes back with the same models: the page goes on where it was.
  const again = await serve(kit.vitreous, ["builtin:small", lm, "--port", port]);
  await page.waitForSelector("#banner", { state: "hidden", timeout: 20_000 });
  await changed(page, () => (vitreous.input?.what.text === "Once upon a time" ? "yes" : ""), "", 20_000);
  await again.stop();
  // And once more, without this model: the page says so, and another can be chosen.
  const last = await serve(kit.vitreous, ["builtin:small", "--port", port]);
  await page.locator("#give textarea").fill("Once upon a day");
  await page.waitForSelector("#banner.model", { state: "visible", timeout: 20_000 });
  await page.locator("#banner button", { hasText: "small" }).click();
  const answer = await changed(page, () => (vitreous.model?.name === "small" && vitreous.answer?.top ? document.querySelector("#answer .headline").textContent : ""), "", 20_000);
  // What the browser says of refused connections is no fault of the page.
  own.wrongOf(page);
  await page.context().close();
  await last.stop();
  return answer ? [] : ["no answer of the other model"];
}
