// Models that write texts, and models of two texts: a translator, speech, questions with their context.

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { changed, drop } from "./kit.mjs";

export const checks = [
  ["a translator writes, and writes anew with a part switched off, as the command does", translated],
  ["a target can be given to a translator", givenTarget],
  ["a recording is written down anew with a part switched off, as by the command", heardAnew],
  ["a token of a context is rewritten in the context", rewrittenContext],
  ["the parts of each stack of layers have numbers, and can be switched off", stacks],
  ["layers and parts of a model of vectors have numbers", vectors],
];

const SOUND = "crates/train/tests/fixtures/transcribe/short.wav";
const command = (kit, ...words) => execFileSync(kit.vitreous, words, { cwd: kit.work, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
// The command prints control characters as spaces; a text that is written anew is cut some tokens behind the one before.
const same = (shown, expected) => {
  const [own, whole] = [shown, expected].map((text) => text.replace(/[\x00-\x20]/g, ""));
  return own.endsWith("…") ? own.length > 1 && whole.startsWith(own.slice(0, -1)) : own.replace("∅", "") === whole;
};
const headline = () => document.querySelector("#answer .headline").textContent;
const wasLine = () => document.querySelector("#answer .before-line").textContent;

async function edited(kit, page, path) {
  await page.evaluate((path) => vitreous.set({ edits: [{ path, do: "zero" }] }), path);
  await changed(page, () => vitreous.answer?.rewritten?.text ?? null, null, 20_000);
  await kit.settled(page);
  return page.evaluate(headline);
}

async function translated(kit) {
  const page = await kit.page("#model=translator&view=attention");
  const faults = [];
  const { length } = await page.evaluate(() => vitreous.input?.tokens ?? []);
  if (!length) return [`the example is not answered: ${JSON.stringify(await page.evaluate(() => vitreous.trouble))}`];
  await page.locator("#give textarea").first().fill("one two six");
  await changed(page, () => (vitreous.input?.what.text === "one two six" ? "yes" : ""), "");
  await kit.settled(page);
  const own = command(kit, "translate", kit.made.translator, "one two six");
  if ((await page.evaluate(headline)) !== own) faults.push(`the page writes “${await page.evaluate(headline)}”, the command “${own}”`);
  for (const path of ["encoder.0.mlp", "decoder.0.cross_attention.heads.0"]) {
    const expected = command(kit, "translate", kit.made.translator, "one two six", "--without", path);
    const shown = await edited(kit, page, path);
    if (!same(shown, expected)) faults.push(`without ${path} the page writes “${shown}”, the command “${expected}”`);
    const was = await page.evaluate(wasLine);
    if (!was.includes(own)) faults.push(`“${was}” does not say “${own}”`);
    await page.evaluate(() => vitreous.set({ edits: [] }));
    await kit.settled(page);
    if ((await page.evaluate(headline)) !== own) faults.push(`taking ${path} back does not bring “${own}” back`);
  }
  return faults;
}

async function givenTarget(kit) {
  const page = await kit.page("#model=translator&text=one two");
  await page.locator("#give textarea").nth(1).fill("five six");
  await changed(page, () => (vitreous.input?.what.target === "five six" ? "yes" : ""), "");
  await kit.settled(page);
  const shown = await page.evaluate(() => [vitreous.answer.text, vitreous.state.pair]);
  return shown.join() === "five six,five six" ? [] : [`the page shows ${shown}`];
}

async function heardAnew(kit) {
  const page = await kit.page("#model=speech");
  await drop(page, { name: "short.wav", type: "audio/wav", bytes: readFileSync(join(kit.root, SOUND)) });
  await changed(page, () => vitreous.answer?.text ?? null, null);
  await kit.settled(page);
  const [model, sound] = [kit.fixtures.speech, SOUND].map((path) => join(kit.root, path));
  const [own, expected] = [[], ["--without", "decoder.0.mlp"]].map((more) => command(kit, "transcribe", model, sound, "--temperature", "0", ...more));
  const shown = await edited(kit, page, "decoder.0.mlp");
  const [before, plain] = await page.evaluate(() => [vitreous.answerBefore.rewritten, vitreous.answerBefore.text.trim()]);
  const faults = [];
  // A model that has learned nothing is asked again at higher temperatures: its transcript is not what it writes anew.
  if (!plain) faults.push("nothing is heard");
  if (!same(before.ended ? before.text : `${before.text} …`, own)) faults.push(`without edits the page writes “${before.text}” anew, the command “${own}”`);
  if (!same(shown, expected)) faults.push(`the page hears “${shown}” with the edit, the command “${expected}”`);
  return faults;
}

async function rewrittenContext(kit) {
  const page = await kit.page("#model=answers&view=attention");
  const before = await page.evaluate(() => vitreous.input.what);
  const at = await page.evaluate(() => vitreous.input.tokens.findLastIndex(({ sequence, end, start }) => sequence === 1 && end > start));
  const chip = page.locator("#give .token").nth(at);
  await chip.dblclick();
  await page.keyboard.type("zebra");
  await page.keyboard.press("Enter");
  await changed(page, () => vitreous.input.what.pair, before.pair);
  await kit.settled(page);
  const { what, base, isChanged } = await page.evaluate(() => ({ what: vitreous.input.what, base: vitreous.base.what, isChanged: vitreous.isChanged }));
  const faults = [];
  if (what.text !== before.text) faults.push(`the question became “${what.text}”`);
  if (!what.pair.includes("zebra") || what.pair.length < before.pair.length - 20) faults.push(`the context became “${what.pair}”`);
  if (base.pair !== before.pair || !isChanged) faults.push(`it is compared with “${base.pair}”`);
  await page.locator("#changes button", { hasText: "Take all back" }).click();
  await changed(page, () => String(vitreous.input.what.pair === vitreous.base.what.pair && !vitreous.isChanged), "false");
  if ((await page.evaluate(() => vitreous.input.what.pair)) !== before.pair) faults.push("the context does not come back");
  return faults;
}

async function stacks(kit) {
  const page = await kit.page("#model=translator&view=parts&text=one two");
  const paths = () => [...document.querySelectorAll("button[role=gridcell]")].map((cell) => cell.dataset.path.split(".").slice(0, 3).join("."));
  const numbers = () => [...document.querySelectorAll(".parts-grid .number")].map((cell) => cell.textContent).filter(Boolean).join(" ");
  const faults = [];
  const seen = [];
  for (const [name, start] of [["encoder", "encoder.0.attention"], ["cross", "decoder.0.cross_attention"], ["decoder", "decoder.0.attention"]]) {
    await page.locator(".controls select").selectOption(name);
    await kit.settled(page);
    const [first] = await page.evaluate(paths);
    if (first !== start) faults.push(`of ${name} the first part is ${first}`);
    const { heads, mlps } = await page.evaluate(async (group) => (await vitreous.look({ effects: { group } })).effects, name);
    const written = (value) => (Math.abs(value) < 0.005 ? "0" : value.toFixed(2).replace("-", "\u2212"));
    const expected = heads.flatMap((layer, at) => [...layer, ...(mlps.length ? [mlps[at]] : [])]).map(written).join(" ");
    const shown = await page.evaluate(numbers);
    if (shown !== expected) faults.push(`of ${name} it shows ${shown}, and the server says ${expected}`);
    seen.push(shown);
  }
  if (new Set(seen).size !== 3) faults.push("groups have the same numbers");
  const legend = await page.locator(".parts-desk .legend .name").textContent();
  if (!legend.includes("log-probability of the whole text")) faults.push(`the numbers are called “${legend}”`);
  // A link that names no group opens the one that holds the change.
  const other = await kit.page("#model=translator&view=parts&text=one two&edits=decoder.0.mlp:zero");
  const cell = other.locator("button[role=gridcell][data-path='decoder.0.mlp']");
  if (!(await cell.count()) || (await cell.getAttribute("aria-pressed")) !== "true") faults.push("a change of the decoder is not shown");
  // Speech takes long: nothing is begun before it is asked for.
  const ear = await kit.page("#model=speech&view=parts");
  await drop(ear, { name: "a.wav", type: "audio/wav", bytes: readFileSync(join(kit.root, SOUND)) });
  await changed(ear, () => vitreous.answer?.text ?? null, null, 30_000);
  await kit.settled(ear);
  if (await ear.evaluate(numbers)) faults.push("numbers of speech are computed before they are asked for");
  await ear.locator(".controls button[data-value=effects]").click();
  await ear.waitForSelector(".parts-desk .legend");
  if (!(await ear.evaluate(numbers))) faults.push("parts of a model of speech have no numbers");
  return faults;
}

async function vectors(kit) {
  const faults = [];
  const page = await kit.page("#model=sentence&view=lens");
  await page.waitForSelector(".lens-table td");
  const shown = await page.evaluate(() => [...document.querySelectorAll(".lens-table td")].map((cell) => cell.textContent).reverse());
  const cosines = await page.evaluate(async () => (await vitreous.look({ lens: {} })).lens.map(({ cosine }) => cosine));
  if (shown.join() !== cosines.map((cosine) => cosine.toFixed(3).replace("-", "\u2212")).join()) faults.push(`layers show ${shown}, and the server says ${cosines}`);
  // The slider is in line with the plot, and its place with the dashed line.
  for (const at of [0, cosines.length - 1]) {
    await page.locator(".lens .slider input").fill(String(at));
    const [thumb, mark] = await page.evaluate((at) => {
      const [input, line] = [".lens .slider input", ".lens .lines-chart .mark"].map((one) => document.querySelector(one).getBoundingClientRect());
      return [at ? input.right - 8 : input.left + 8, line.left];
    }, at);
    if (Math.abs(thumb - mark) > 1) faults.push(`in place ${at} the slider is at ${thumb}, and the line at ${mark}`);
  }
  // What is said of a model is true of it: this one has neither class token nor final norm.
  const small = await kit.page("#model=small&view=lens");
  const lede = await small.locator(".view.lens .lede").textContent();
  if (!lede.includes("patches are pooled") || lede.includes("norm")) faults.push(`of the small model it says “${lede}”`);
  await page.evaluate(() => vitreous.set({ view: "parts" }));
  await page.waitForSelector(".parts-desk .legend");
  const legend = await page.locator(".parts-desk .legend .name").textContent();
  if (!legend.includes("cosine")) faults.push(`numbers of parts are called “${legend}”`);
  const before = await page.evaluate(() => document.querySelector(".parts-desk .signed-bars").textContent);
  await page.locator("button[role=gridcell]").first().click();
  await changed(page, () => document.querySelector(".parts-desk .signed-bars").textContent, before);
  return faults;
}
