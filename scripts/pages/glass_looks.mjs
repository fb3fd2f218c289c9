// What every view looks like, at three widths, in light and in dark, in both languages: contrast, names, overflow, jumps; its size.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { changed, drop } from "./kit.mjs";

const WIDTHS = { phone: [390, 844], desk: [1440, 900], wall: [2560, 1440] };
const MOST_BYTES = 500_000;
const VIEWS = {
  flow: "#model=small&view=flow&example=clothes-0", stage: "#model=small&view=flow&step=blocks.0.attention", values: "#model=small&view=flow&step=blocks.0.mlp",
  attention: "#model=small&view=attention&token=6&layer=4&head=2", lens: "#model=small&view=lens",
  parts: "#model=small&view=parts&edits=blocks.3.attention.heads.1:zero,blocks.2.mlp:scale:0.5", compare: "#model=small&view=compare&other-example=clothes-4",
  "text-attention": "#model=lm&view=attention&text=Once upon a time there was", "text-lens": "#model=lm&view=lens&text=Once upon a time there was", masked: "#model=masked&view=flow", sentence: "#model=sentence&view=attention", "sentence-lens": "#model=sentence&view=lens", answers: "#model=answers&view=flow",
  translator: "#model=translator&view=attention&group=cross&text=one two three", "translator-parts": "#model=translator&view=parts&edits=decoder.0.mlp:zero", clip: "#model=clip&view=flow",
  speech: "#model=speech&view=flow", "speech-attention": "#model=speech&view=attention&group=cross",
};
const SOUND = "crates/train/tests/fixtures/transcribe/short.wav";
const SCHEMES = ["light", "dark"];
const STEPS = 8;

export const checks = [
  ...Object.entries(VIEWS).map(([name, hash]) => [`the view ${name} at three widths, light and dark`, (kit) => looks(kit, name, hash)]),
  ["every step of the tour at three widths, light and dark", tour],
  ["every text is there in Chinese", inChinese],
  ["the page is small", isSmall],
  ["colours can be chosen", chosenColours],
];

export async function looks(kit, name, hash) {
  const faults = [];
  for (const [screen, [width, height]] of Object.entries(WIDTHS)) {
    const page = await opened(kit, hash, { width, height });
    faults.push(...(await scanned(kit, page, name, screen)));
    await kit.close(page);
  }
  return faults;
}

// A page, with a recording where its model listens.
async function opened(kit, hash, how) {
  const page = await kit.page(hash, how);
  if (hash.includes("model=speech")) {
    await drop(page, { name: "short.wav", type: "audio/wav", bytes: readFileSync(join(kit.root, SOUND)) });
    await changed(page, () => vitreous.answer?.text ?? null, null, 20_000);
    await kit.settled(page);
  }
  return page;
}

async function scanned(kit, page, name, screen) {
  const faults = [];
  for (const colorScheme of SCHEMES) {
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
    await kit.settled(page);
    faults.push(...[...(await kit.scan(page)), ...kit.wrongOf(page)].map((text) => `${name}, ${screen} ${colorScheme}: ${text}`));
    await kit.shot(page, `${name}-${screen}-${colorScheme}`, { fullPage: screen === "phone" });
  }
  return faults;
}

async function tour(kit) {
  const faults = [];
  for (const [screen, [width, height]] of Object.entries(WIDTHS)) {
    const page = await kit.page("#view=tour&step=1", { width, height });
    for (let step = 1; step <= STEPS; step++) {
      await page.evaluate((step) => vitreous.set({ step: String(step) }), step);
      await page.waitForSelector(".tour-figure > *");
      await kit.settled(page);
      // A step in place of another is no jump: how steps are opened by a reader is seen where the tour is followed.
      await page.evaluate(() => { window.layoutShiftSum = 0; });
      faults.push(...(await scanned(kit, page, `tour-${step}`, screen)));
    }
    await kit.close(page);
  }
  return faults;
}

async function inChinese(kit) {
  const faults = [];
  for (const [name, hash] of Object.entries(VIEWS)) {
    const page = await opened(kit, `${hash}&lang=zh`);
    // Keys without a text stand for themselves.
    const keys = await page.evaluate(async () => Object.keys((await import("/glass/app/strings.js")).strings));
    const shown = await page.evaluate(() => document.body.innerText);
    const lost = keys.filter((key) => key.includes("-") && shown.split(/\s+/).includes(key));
    if (lost.length) faults.push(`${name}: ${lost.join(", ")}`);
    faults.push(...(await kit.scan(page)).map((text) => `${name}: ${text}`));
    await kit.shot(page, `${name}-zh`);
    faults.push(...(await kit.close(page)));
  }
  return faults;
}

async function isSmall(kit) {
  const page = await kit.page("#model=small");
  for (const view of ["attention", "lens", "parts", "compare"]) {
    await page.evaluate((view) => vitreous.set({ view }), view);
    await kit.settled(page);
  }
  const bytes = await page.evaluate(() => performance.getEntriesByType("resource").filter(({ name }) => name.includes("/glass/app/")).reduce((sum, { decodedBodySize }) => sum + decodedBodySize, 0));
  return bytes < MOST_BYTES ? [] : [`the page is ${bytes} bytes`];
}

async function chosenColours(kit) {
  const page = await kit.page("#model=small");
  const ground = () => getComputedStyle(document.body).backgroundColor;
  const light = await page.evaluate(ground);
  await page.locator("#settings button", { hasText: "☾" }).click();
  const dark = await page.evaluate(ground);
  const faults = dark !== light ? [] : ["the dark colours are the light ones"];
  await page.reload();
  if ((await page.evaluate(ground)) !== dark) faults.push("the choice is lost when the page is opened again");
  return faults;
}

