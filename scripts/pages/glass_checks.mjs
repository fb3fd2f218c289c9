// What a reader does: gives pictures, texts and sounds, looks, reaches in. Numbers of the page are those of the command.

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { changed, drop } from "./kit.mjs";
import { arraysOf } from "./npz.mjs";

const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 2 : 1)}\u00a0%`;
const PICTURE = "crates/vitreous/tests/fixtures/pictures/noise.png";
const SOUND = "crates/train/tests/fixtures/transcribe/short.wav";

export const checks = [
  ["a picture that is dropped is answered as by the command", droppedPicture],
  ["a text is answered as it is typed", typedText],
  ["a sound that is dropped is written down as by the command", droppedSound],
  ["a sound that is recorded is answered", recordedSound],
  ["a head that is switched off changes the answer as in the command", switchedOff],
  ["a part of the picture that is covered changes the answer", coveredPicture],
  ["what is covered is saved, and the command answers as the page", savedPicture],
  ["Back goes from what was dropped to what was there", backFromDropped],
  ["a token that is rewritten stands beside the text as it was", rewrittenToken],
  ["a value is taken from another input", takenFromAnother],
  ["a stage shows the numbers of the library", stageNumbers],
  ["contributions and layers are those of the command", partsAndLayers],
  ["a link opens what was looked at", linkWithState],
  ["two inputs stand side by side", compared],
  ["lines of layers are the probabilities of each layer", lensLines],
  ["a click takes back what marks a part", takenBack],
  ["everything is done by keyboard alone", keyboardAlone],
  ["single cells are read by keyboard", cellsByKeyboard],
  ["play runs the data through, and layers fold", playing],
];

const file = (kit, name) => join(kit.root, name);
const command = (kit, ...words) => execFileSync(kit.vitreous, words, { cwd: kit.work, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
const jsonOf = (kit, ...words) => JSON.parse(command(kit, ...words, "--json").trim().split("\n").at(-1));
const score = () => document.querySelector("#answer .score").textContent;
const headline = () => document.querySelector("#answer .headline").textContent;
const rows = (page) => page.evaluate(() => [...document.querySelectorAll("#answer .bars li:not(.empty)")].map((row) => [row.querySelector(".name").textContent, row.querySelector(".number").textContent]));
const near = (what, got, expected, most) => (Math.abs(got - expected) <= most ? [] : [`${what}: ${got}, and the command says ${expected}`]);

function sameRows(shown, expected) {
  const faults = [];
  if (!shown.length) faults.push("no answer is shown");
  shown.forEach(([name, share], at) => {
    const { label, score } = expected[at] ?? {};
    if (name !== label || share !== percent(score)) faults.push(`row ${at} is ${name} ${share}, and the command says ${label} ${percent(score ?? NaN)}`);
  });
  return faults;
}

async function giveFile(kit, page, name, type) {
  const before = await page.evaluate(() => vitreous.input?.input ?? "none");
  await drop(page, { name: name.split("/").at(-1), type, bytes: readFileSync(file(kit, name)) });
  await changed(page, () => vitreous.input?.input ?? "none", before);
  await kit.settled(page);
}

async function droppedPicture(kit) {
  const page = await kit.page("#model=small");
  await giveFile(kit, page, PICTURE, "image/png");
  const { top } = jsonOf(kit, "predict", "builtin:small", file(kit, PICTURE), "--top", "6");
  const faults = sameRows(await rows(page), top);
  // What is shown is what was dropped.
  const shown = await page.evaluate(() => document.querySelector(".given").naturalWidth);
  if (!shown) faults.push("the picture is not shown");
  return faults;
}

async function typedText(kit) {
  const page = await kit.page("#model=lm&text=Once");
  const before = await page.evaluate(() => JSON.stringify(vitreous.input.tokens));
  await page.locator("#give textarea").click();
  await page.keyboard.press("End");
  await page.keyboard.type(" upon a time", { delay: 15 });
  await changed(page, () => JSON.stringify(vitreous.input.tokens), before);
  await kit.settled(page);
  const { target, attribution } = jsonOf(kit, "explain", file(kit, kit.fixtures.lm), "--text", "Once upon a time", "--out", join(kit.work, "typed"));
  const shown = await page.evaluate(() => vitreous.answer.top[0]);
  const faults = shown.index === target.id ? [] : [`the page goes on with ${JSON.stringify(shown)}, the command with ${JSON.stringify(target)}`];
  if (attribution && shown.logit !== undefined) faults.push(...near("the logit", shown.logit, attribution.logit, 2e-3));
  // Stale answers are dropped: what is shown belongs to the whole text.
  const text = await page.evaluate(() => vitreous.input.what.text);
  if (text !== "Once upon a time") faults.push(`the answer is of “${text}”`);
  return faults;
}

async function droppedSound(kit) {
  const page = await kit.page("#model=speech");
  await giveFile(kit, page, SOUND, "audio/wav");
  const expected = command(kit, "transcribe", file(kit, kit.fixtures.speech), file(kit, SOUND)).trim();
  const shown = await page.evaluate(() => vitreous.answer.text.trim());
  const faults = expected.includes(shown) && shown ? [] : [`the page writes “${shown}”, the command “${expected}”`];
  const seen = await page.evaluate(() => document.querySelector(".spectrogram").naturalWidth);
  if (!seen) faults.push("the spectrogram is not shown");
  return faults;
}

async function recordedSound(kit) {
  const page = await kit.page("#model=speech");
  const button = page.locator("#give button.primary");
  await button.click();
  await page.waitForTimeout(700);
  await button.click();
  await changed(page, () => vitreous.answer?.text ?? null, null);
  return (await page.evaluate(() => vitreous.input.what.blob.type)) === "audio/wav" ? [] : ["the recording is no WAV"];
}

async function switchedOff(kit) {
  const page = await kit.page("#model=small&view=attention&layer=3&head=1&example=clothes-3");
  const before = await page.evaluate(score);
  await page.locator(".controls button", { hasText: "Switch this head off" }).click();
  await changed(page, () => document.querySelector("#answer .before-line").textContent, "");
  await kit.settled(page);
  const after = await page.evaluate(score);
  const faults = [];
  const was = await page.evaluate(() => document.querySelector("#answer .before-line").textContent);
  if (!was.includes(before)) faults.push(`“${was}” does not say ${before}`);
  const { scores, picture, words } = await page.evaluate(async () => {
    const bytes = new Uint8Array(await vitreous.input.what.blob.arrayBuffer());
    return { scores: vitreous.answer.top, picture: btoa(String.fromCharCode(...bytes)), words: document.querySelector(".command").textContent };
  });
  const { writeFileSync } = await import("node:fs");
  const path = join(kit.work, "given.png");
  writeFileSync(path, Buffer.from(picture, "base64"));
  const { top } = jsonOf(kit, "predict", "builtin:small", path, "--top", "6", "--without", "blocks.3.attention.heads.1");
  faults.push(...sameRows(await rows(page), top));
  if (!words.includes("--without blocks.3.attention.heads.1")) faults.push(`the command line is “${words}”`);
  if (after === before && scores[0].score === top[0].score) faults.push("the head has no effect at all");
  await page.locator("#changes button", { hasText: "Copy command" }).click();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  if (copied !== words) faults.push(`“${copied}” was copied`);
  // Dragging its slider: every answer on the way is asked for, and the last one counts.
  const slide = page.locator(".edit input[type=range]");
  await slide.focus();
  for (let at = 0; at < 30; at++) await page.keyboard.press("ArrowRight");
  await kit.settled(page);
  const factor = await page.evaluate(() => vitreous.state.edits[0].factor);
  const scaled = jsonOf(kit, "predict", "builtin:small", path, "--top", "6", "--scale", `blocks.3.attention.heads.1=${factor}`);
  faults.push(...sameRows(await rows(page), scaled.top));
  await page.locator("#changes button", { hasText: "Take all back" }).click();
  await changed(page, score, "none");
  await kit.settled(page);
  if ((await page.evaluate(score)) !== before) faults.push("taking it back does not bring the answer back");
  return faults;
}

async function coveredPicture(kit) {
  const page = await kit.page("#model=small&example=clothes-0");
  const before = await page.evaluate(() => vitreous.input.input);
  await cover(page);
  await changed(page, () => vitreous.input.input, before);
  await kit.settled(page);
  const faults = [];
  if (!(await page.evaluate(() => document.querySelector("#answer .before-line").textContent))) faults.push("the answer before is not shown");
  if ((await page.evaluate(() => vitreous.base.input)) !== before) faults.push("the picture as it was is lost");
  await page.locator("#give button", { hasText: "Uncover" }).click();
  await changed(page, () => String(vitreous.input.input === vitreous.base.input), "false");
  return faults;
}

async function cover(page) {
  await page.locator("#give button", { hasText: "Cover a part" }).click();
  const { x, y, width, height } = await page.locator(".mask").boundingBox();
  await page.mouse.move(x + 0.3 * width, y + 0.4 * height);
  await page.mouse.down();
  await page.mouse.move(x + 0.8 * width, y + 0.6 * height, { steps: 12 });
  await page.mouse.up();
}

async function savedPicture(kit) {
  const page = await kit.page("#model=small&example=clothes-0&edits=blocks.2.mlp:zero");
  const before = await page.evaluate(() => vitreous.input.input);
  await cover(page);
  await changed(page, () => vitreous.input.input, before);
  await kit.settled(page);
  const [saved] = await Promise.all([page.waitForEvent("download"), page.locator("#changes button.save-file").click()]);
  const path = join(kit.work, saved.suggestedFilename());
  await saved.saveAs(path);
  const words = (await page.locator(".command").textContent()).replace("vitreous ", "").replace(" small ", " builtin:small ").replace(saved.suggestedFilename(), path).split(" ");
  const faults = sameRows(await rows(page), jsonOf(kit, ...words, "--top", "6").top);
  if (!(await page.locator("#changes").textContent()).includes("does not hold")) faults.push("the page does not say that the link lacks what is covered");
  // Another model is given the picture as it was: what was covered was covered in this one.
  await page.evaluate(() => vitreous.set({ model: "small-untrained" }));
  await changed(page, () => (vitreous.model.name === "small-untrained" && vitreous.input ? String(Boolean(vitreous.painted)) : ""), "");
  if (await page.evaluate(() => vitreous.isChanged || Boolean(vitreous.painted))) faults.push("what is covered stays when the model changes");
  return faults;
}

async function backFromDropped(kit) {
  const page = await kit.page("#model=small&example=clothes-2");
  const before = await page.evaluate(() => vitreous.input.input);
  await giveFile(kit, page, PICTURE, "image/png");
  const dropped = await page.evaluate(() => vitreous.input.input);
  const faults = [];
  await page.goBack();
  await changed(page, () => vitreous.input.input, dropped).catch(() => faults.push("Back does nothing"));
  await kit.settled(page);
  if ((await page.evaluate(() => vitreous.input.input)) !== before) faults.push("Back does not lead to the example");
  await cover(page);
  await changed(page, () => String(Boolean(vitreous.painted)), "false");
  await kit.settled(page);
  await page.goForward();
  await changed(page, () => vitreous.input.input, before);
  await kit.settled(page);
  if ((await page.evaluate(() => vitreous.input.input)) !== dropped) faults.push("Forward does not lead to what was dropped, as it was");
  if (await page.evaluate(() => vitreous.isChanged)) faults.push("what was painted over the example is painted over what was dropped");
  return faults;
}

async function rewrittenToken(kit) {
  const page = await kit.page("#model=lm&text=Once upon a time");
  await page.locator("#give .token").nth(1).dblclick();
  await page.keyboard.type(" on");
  await page.keyboard.press("Enter");
  await changed(page, () => document.querySelector("#answer .before-line").textContent, "");
  await kit.settled(page);
  const { text, was, base } = await page.evaluate(() => ({ text: vitreous.state.text, was: vitreous.state.was, base: vitreous.base.what.text }));
  return was === "Once upon a time" && base === was && text !== was ? [] : [`the text is “${text}”, was “${was}”, compared with “${base}”`];
}

async function takenFromAnother(kit) {
  const page = await kit.page("#model=small&view=parts&example=clothes-0");
  await page.locator(".segmented button", { hasText: "from the other input" }).click();
  await page.locator(".other .examples button").nth(3).click();
  await changed(page, () => vitreous.other?.input ?? "", "");
  await page.locator("button[role=gridcell][data-path='blocks.5.mlp']").click();
  await changed(page, () => document.querySelector("#answer .before-line").textContent, "");
  const pressed = await page.locator("button[role=gridcell][data-path='blocks.5.mlp']").getAttribute("aria-pressed");
  const before = await page.evaluate(() => [vitreous.answer.top, vitreous.answerBefore.top].map((top) => top[0].score));
  const faults = pressed === "true" ? [] : ["the part is not marked"];
  if (before[0] === before[1]) faults.push("the value of the other input changes nothing");
  // The whole stream of the other input gives its answer.
  await page.evaluate(() => vitreous.set({ edits: [{ path: "blocks.5", do: "from" }] }));
  await kit.settled(page);
  const [patched, other] = await page.evaluate(async () => {
    const own = await vitreous.look({ answer: { top: 3 } }, { input: vitreous.other, edits: [] });
    return [vitreous.answer.top[0], own.answer.top[0]];
  });
  if (patched.label !== other.label) faults.push(`the stream of the other input says ${patched.label}, the other input itself ${other.label}`);
  faults.push(...near("its score", patched.score, other.score, 1e-5));
  return faults;
}

async function stageNumbers(kit) {
  const page = await kit.page("#model=small&step=blocks.2.attention&head=1&token=5");
  await giveFile(kit, page, PICTURE, "image/png");
  await page.evaluate(() => vitreous.set({ step: "blocks.2.attention", head: 1, token: 5 }));
  await kit.settled(page);
  const out = join(kit.work, "stage");
  const { page: written } = jsonOf(kit, "explain", "builtin:small", file(kit, PICTURE), "--arrays", "--out", out);
  const arrays = arraysOf(readFileSync(resolve(kit.work, written, "../arrays.npz")));
  const { shape: [, tokens], data } = arrays["attention.2"];
  const expected = data.subarray((1 * tokens + 5) * tokens, (1 * tokens + 6) * tokens);
  const shown = await page.evaluate(() => [...document.querySelectorAll("table.weights tr[data-at]")].map((row) => [Number(row.dataset.at), row.children[3].textContent]));
  const faults = shown.length ? [] : ["the lecture shows no weights"];
  for (const [at, weight] of shown) if (weight !== percent(expected[at])) faults.push(`the weight on token ${at} is ${weight}, in the library ${percent(expected[at])}`);
  const apart = Number(await page.locator(".check").getAttribute("data-apart"));
  if (!(apart < 1e-4)) faults.push(`the weighted sum of the page is ${apart} from the model's`);
  // The last stage's numbers are the logits.
  const logits = await page.evaluate(async () => {
    const { stages } = await vitreous.graph();
    const got = await vitreous.look({ values: [{ path: stages.at(-1).value }] });
    return [...got.values[0].data];
  });
  const all = jsonOf(kit, "predict", "builtin:small", file(kit, PICTURE), "--top", "10").top;
  const z = logits.map(Math.exp);
  const sum = z.reduce((a, b) => a + b, 0);
  for (const { index, score } of all) faults.push(...near(`class ${index}`, z[index] / sum, score, 1e-5));
  // Another stage opens its numbers, before and after.
  await page.evaluate(() => vitreous.set({ step: "blocks.1.mlp" }));
  await kit.settled(page);
  if ((await page.locator(".opened figure").count()) < 2) faults.push("a stage does not show what goes in and what comes out");
  return faults;
}

async function partsAndLayers(kit) {
  const page = await kit.page("#model=small&view=parts");
  await giveFile(kit, page, PICTURE, "image/png");
  const said = jsonOf(kit, "explain", "builtin:small", file(kit, PICTURE), "--out", join(kit.work, "parts"));
  const cells = await page.evaluate(() => [...document.querySelectorAll("button[role=gridcell]")].map((cell) => [cell.dataset.path, cell.textContent]));
  const faults = [];
  const close = (text, value) => Math.abs(Number(text.replace("\u2212", "-")) - value) <= 0.0051;
  for (const [path, text] of cells) {
    const [, layer, head] = path.match(/blocks\.(\d+)\.(?:attention\.heads\.(\d+)|mlp)/) ?? [];
    const of = said.attribution.layers[layer];
    const value = head === undefined ? of.mlp : of.heads[head];
    if (!close(text, value)) faults.push(`${path} shows ${text}, the command says ${value}`);
  }
  if (!cells.length) faults.push("no parts are shown");
  await page.evaluate(() => vitreous.set({ view: "lens" }));
  await page.waitForSelector(".lens-table td");
  await kit.settled(page);
  const shown = await page.evaluate(() => [...document.querySelectorAll(".lens-table tr")].map((row) => row.querySelector("td").textContent.trim()).reverse());
  said.lens.forEach(({ top }, at) => {
    const expected = `${top[0].label} ${percent(top[0].score)}`;
    if (shown[at] !== expected) faults.push(`place ${at} of the lens shows “${shown[at]}”, the command says “${expected}”`);
  });
  return faults;
}

async function lensLines(kit) {
  const page = await kit.page("#model=small&view=lens");
  await giveFile(kit, page, PICTURE, "image/png");
  await page.waitForSelector(".lens-table td");
  await kit.settled(page);
  const [height, top, bottom] = [220, 10, 26];
  const found = await page.evaluate(async () => {
    const { lens } = await vitreous.look({ lens: { token: 0, top: 10 } });
    const names = [...document.querySelectorAll(".keys li span:nth-child(2)")].map((one) => one.textContent);
    const lines = [...document.querySelectorAll(".lens .lines-chart polyline")].map((line) => line.getAttribute("points").split(" ").map((point) => Number(point.split(",")[1])));
    return names.map((name, at) => ({ name, drawn: lines[at], scores: lens.map(({ top }) => top.find(({ label }) => label === name).score) }));
  });
  const faults = found.length === 5 ? [] : [`there are ${found.length} lines`];
  for (const { name, drawn, scores } of found) {
    scores.forEach((score, place) => {
      const shown = 1 - (drawn[place] - top) / (height - top - bottom);
      if (Math.abs(shown - score) > 0.001) faults.push(`${name} is drawn at ${shown.toFixed(3)} in place ${place}, and is ${score}`);
    });
  }
  return faults;
}

async function takenBack(kit) {
  const page = await kit.page("#model=small&view=parts&edits=blocks.3.attention:zero");
  const cell = page.locator("button[role=gridcell][data-path='blocks.3.attention.heads.1']");
  const faults = (await cell.getAttribute("aria-pressed")) === "true" ? [] : ["a head of an attention that is off is not marked"];
  await cell.click();
  await kit.settled(page);
  const edits = await page.evaluate(() => vitreous.state.edits);
  if (edits.length) faults.push(`a click leaves ${JSON.stringify(edits)}`);
  if ((await cell.getAttribute("aria-pressed")) !== "false") faults.push("it stays marked");
  return faults;
}

async function cellsByKeyboard(kit) {
  const faults = [];
  const focus = async (page, selector) => {
    for (let at = 0; at < 120; at++) {
      await page.keyboard.press("Tab");
      if (await page.evaluate((selector) => document.activeElement?.matches(selector), selector)) return true;
    }
    faults.push(`Tab does not reach ${selector}`);
    return false;
  };
  const read = async (page, selector, said, keys) => {
    if (!(await focus(page, selector))) return;
    const seen = new Set();
    for (const key of keys) {
      await page.keyboard.press(key);
      seen.add(await page.locator(said).first().textContent());
    }
    if (seen.size !== keys.length) faults.push(`${selector}: ${keys} read ${[...seen].join(" | ")}`);
  };
  const parts = await kit.page("#model=small&view=parts");
  if (await focus(parts, "button[role=gridcell]")) {
    await parts.keyboard.press("ArrowLeft");
    await parts.keyboard.press("Enter");
    await kit.settled(parts);
    const paths = await parts.evaluate(() => vitreous.state.edits.map(({ path }) => path));
    if (paths.join() !== "blocks.0.attention,blocks.0.mlp") faults.push(`the first layer is switched off as ${paths}`);
  }
  const stage = await kit.page("#model=small&view=flow&step=blocks.1.mlp");
  await read(stage, ".matrix canvas", ".stage-values .says", ["ArrowRight", "ArrowRight", "ArrowDown"]);
  const lecture = await kit.page("#model=small&view=flow&step=blocks.1.attention");
  await read(lecture, ".tall-strip", ".lecture .formula", ["ArrowDown", "ArrowDown", "ArrowDown"]);
  const compare = await kit.page("#model=lm&view=compare&text=once upon a time&other-text=once upon a dime");
  await read(compare, "canvas.patching", ".patching-says", ["ArrowRight", "ArrowRight", "ArrowDown"]);
  const speech = await kit.page("#model=speech&view=attention");
  await giveFile(kit, speech, SOUND, "audio/wav");
  await speech.waitForSelector(".wide-map canvas");
  await read(speech, ".wide-map canvas", ".attention-large .says", ["ArrowRight", "ArrowRight", "ArrowDown"]);
  return faults;
}

async function linkWithState(kit) {
  const hash = "#model=lm&view=attention&text=Once+upon+a+time&token=2&layer=1&head=0&edits=blocks.0.mlp:scale:0.5,blocks.1.attention.heads.1:zero&lang=zh";
  const page = await kit.page(hash);
  const view = () => JSON.stringify([vitreous.state, vitreous.answer.top.slice(0, 2), document.querySelector(".view h2").textContent]);
  const seen = await page.evaluate(view);
  const address = await page.evaluate(() => { vitreous.set({ head: 1 }); vitreous.set({ head: 0 }); return location.hash; });
  const other = await kit.page(address);
  const faults = (await other.evaluate(view)) === seen ? [] : [`${address} opens ${await other.evaluate(view)}, not ${seen}`];
  const state = JSON.parse(seen)[0];
  if (state.token !== 2 || state.layer !== 1 || state.edits.length !== 2 || state.lang !== "zh") faults.push(`the link gives ${JSON.stringify(state)}`);
  if ((await page.evaluate(() => document.documentElement.lang)) !== "zh-Hans") faults.push("the language is not in the page's `lang`");
  await other.goBack().catch(() => {});
  const nonsense = await kit.page("#model=small&view=nothing&layer=99&head=-7&token=1e9&edits=%00:x,blocks:..:zero&example=<script>");
  if (!(await nonsense.evaluate(() => vitreous.answer?.top?.length))) faults.push("an address of nonsense shows no answer");
  return faults;
}

async function compared(kit) {
  const page = await kit.page("#model=small&view=compare&example=clothes-0&other-example=clothes-2");
  const labels = await page.evaluate(() => [...document.querySelectorAll(".side .headline")].map((one) => one.textContent));
  const faults = labels.length === 2 && labels.every(Boolean) ? [] : [`the sides say ${labels}`];
  if (!(await page.locator(".chart polyline").count())) faults.push("the streams are not compared");
  const [first] = labels;
  await page.locator(".other select").selectOption("small-untrained");
  await changed(page, () => document.querySelectorAll(".side .headline")[1].textContent + document.querySelectorAll(".side .score")[1].textContent, labels[1]);
  await kit.settled(page);
  if ((await page.evaluate(() => document.querySelector(".side .headline").textContent)) !== first) faults.push("the first side changes with the second model");
  return faults;
}

async function keyboardAlone(kit) {
  const page = await kit.page("#model=small&view=flow");
  const faults = [];
  const focused = () => page.evaluate(() => document.activeElement?.closest("nav, .parts-grid, .headgrid")?.className || document.activeElement?.parentElement?.id);
  const tabTo = async (test, most = 60) => {
    for (let at = 0; at < most; at++) {
      await page.keyboard.press("Tab");
      if (await page.evaluate(test)) return true;
    }
    return false;
  };
  if (!(await tabTo(() => document.activeElement?.matches("#views a[aria-current]")))) faults.push("Tab does not reach the views");
  const ring = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  if (ring === "none") faults.push("what has the focus is not marked");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".headgrid .cells button");
  await kit.settled(page);
  if ((await page.evaluate(() => vitreous.state.view)) !== "attention") faults.push("Enter does not open the next view");
  if (!(await tabTo(() => document.activeElement?.closest(".headgrid")))) faults.push(`Tab does not reach the grid of heads: ${await focused()}`);
  const at = await page.evaluate(() => [vitreous.layer, vitreous.head]);
  await page.keyboard.press("ArrowUp");
  await page.keyboard.press("ArrowRight");
  const moved = await page.evaluate(() => [vitreous.layer, vitreous.head]);
  if (moved[0] !== at[0] - 1 || moved[1] !== at[1] + 1) faults.push(`arrow keys go from ${at} to ${moved}`);
  await page.keyboard.press("4");
  await page.waitForSelector("button[role=gridcell]");
  if (!(await tabTo(() => document.activeElement?.matches("button[role=gridcell]")))) faults.push("Tab does not reach the parts");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  const spoken = await changed(page, () => (document.querySelector("#answer .before-line").textContent ? document.querySelector("#live").textContent : ""), "");
  if (!spoken) faults.push("the new answer is not announced");
  return faults;
}

async function playing(kit) {
  const page = await kit.page("#model=small");
  const play = page.locator(".flow button.primary");
  await play.click();
  await page.waitForTimeout(600);
  const reached = await page.locator(".stage-card.reached").count();
  const faults = reached > 0 ? [] : ["play reaches no stage"];
  await play.click();
  const rows = await page.locator(".flow-row.large").count();
  await page.locator("button.row-name").nth(1).click();
  if ((await page.locator(".flow-row.large").count()) !== rows + 1) faults.push("a layer does not unfold");
  return faults;
}
