// What should not happen, and does: a picture of 100 megapixels, a text of a megabyte, a server that goes away and comes back, a model
// that is no longer there, two tabs.

import { join } from "node:path";
import { changed, drop, Kit, serve } from "./kit.mjs";
import { grey } from "./png.mjs";

export const checks = [
  ["a picture of 100 megapixels is scaled down", hugePicture],
  ["a text of a megabyte is cut", hugeText],
  ["what is no picture is refused with a sentence", noPicture],
  ["two tabs do not know of each other", twoTabs],
  ["a server goes away and comes back, without a model", serverGone],
  ["an address of a model that is not served gives the models to choose from", notServed],
  ["a server that was started again, or has loaded its models again, is given the inputs again", givenAgain],
];

async function hugePicture(kit) {
  const page = await kit.page("#model=small");
  const before = await page.evaluate(() => vitreous.input.input);
  await drop(page, { name: "huge.png", type: "image/png", bytes: grey(10_000) });
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

async function notServed(kit) {
  const page = await kit.page("#model=nothing&view=attention");
  const choice = page.locator("#view .models button", { hasText: /^small$/ });
  await choice.waitFor();
  await choice.click();
  const answer = await changed(page, () => (vitreous.model?.name === "small" && vitreous.answer?.top ? document.querySelector("#view .headgrid")?.className ?? "" : ""), "", 20_000);
  const isTold = await page.locator("#banner").isVisible();
  return [...(answer ? [] : ["the view does not open"]), ...(isTold ? ["the banner stays"] : []), ...(await kit.close(page))];
}

async function givenAgain(kit) {
  const lm = `lm=${join(kit.root, kit.fixtures.lm)}`;
  const words = ["builtin:small", lm, "--port"];
  let server = await serve(kit.vitreous, [...words, "0"]);
  const own = new Kit({ ...kit, server });
  own.browser = kit.browser;
  const port = new URL(server.address).port;
  const again = {
    "started again": async () => {
      await server.stop();
      server = await serve(kit.vitreous, [...words, port]);
    },
    "loaded again": async () => {
      const answer = await fetch(`${server.address}/admin/reload`, { method: "POST" });
      if (!answer.ok) throw new Error(`/admin/reload says ${answer.status}`);
    },
  };
  const faults = [];
  // Of an input, of one that values are taken from, and of one whose vectors are tried: all of them have another name then.
  const pages = { picture: "#model=small&view=flow&example=clothes-0&other-example=clothes-3&edits=blocks.5.mlp:from", text: "#model=lm&view=compare&text=once upon a time&other-text=once upon a dime" };
  for (const [name, hash] of Object.entries(pages)) {
    const page = await own.page(hash);
    for (const [round, [how, happen]] of Object.entries(again).entries()) {
      const state = () => ({ input: vitreous.input.input, top: vitreous.answer.top, trouble: vitreous.trouble });
      const before = await page.evaluate(state);
      await happen();
      const edit = (factor) => page.evaluate((factor) => vitreous.edit("blocks.1.mlp", factor === 1 ? null : { do: "scale", factor }), factor);
      // Of a look that is new: the page keeps what it has seen.
      await edit(0.5 + 0.1 * round);
      await changed(page, () => vitreous.input?.input ?? "", before.input, 20_000);
      await edit(1);
      await own.settled(page);
      const after = await page.evaluate(state);
      if (after.trouble) faults.push(`${name}, ${how}: ${JSON.stringify(after.trouble)}`);
      if (JSON.stringify(after.top) !== JSON.stringify(before.top)) faults.push(`${name}, ${how}: the answer was ${before.top[0].score} and is ${after.top[0].score}`);
      const shown = await page.evaluate(() => [document.querySelector(".view .note")?.textContent, document.querySelector("#answer .doubt").textContent].join(" "));
      if (/kept|again/.test(shown)) faults.push(`${name}, ${how}: “${shown}”`);
      if (name === "text" && !(await page.locator("canvas.patching").count())) faults.push(`${how}: vectors are not tried any more`);
      if (name === "picture" && !(await page.evaluate(() => document.querySelector(".end.picture img").naturalWidth))) faults.push(`${how}: the picture is not shown`);
    }
    // What the browser says of refused connections and of forgotten inputs is no fault of the page.
    own.wrongOf(page);
    await page.context().close();
  }
  await server.stop();
  return faults;
}
