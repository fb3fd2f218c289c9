// Uses the page as a reader would and keeps its frames: record_glass.mjs ADDRESS FOLDER. Called by scripts/record_glass.

import { createRequire } from "node:module";
import { writeFileSync } from "node:fs";
import { join } from "node:path";

const { chromium } = createRequire(import.meta.url)(join(process.env.NODE_PATH, "playwright-core"));
const [address, folder] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-gpu", "--hide-scrollbars"] });
const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme: "light" });
const page = await context.newPage();
await page.goto(`${address}#model=small&view=flow&example=clothes-0&lang=en`);
await page.waitForSelector("#view .flow *");
await page.waitForTimeout(1500);

// Frames come when something changes, each with its time. What is loading is left out, so that a busy machine shows the same.
const frames = [];
const hidden = { since: null, sum: 0, last: null };
const session = await context.newCDPSession(page);
session.on("Page.screencastFrame", ({ data, sessionId, metadata }) => {
  if (hidden.since === null) frames.push({ time: metadata.timestamp - hidden.sum, data });
  else hidden.last = data;
  session.send("Page.screencastFrameAck", { sessionId }).catch(() => {});
});
await session.send("Page.startScreencast", { format: "jpeg", quality: 88, everyNthFrame: 1 });
const seconds = (many) => page.waitForTimeout(1000 * many);
// Until so much is there, and drawn.
async function when(isThere) {
  for (const end = Date.now() + 20_000; !(await page.evaluate(isThere)); await page.waitForTimeout(50)) {
    if (Date.now() > end) throw new Error(`it is not there: ${isThere}`);
  }
  await page.waitForTimeout(400);
}
async function open(hash, isThere) {
  hidden.since = Date.now() / 1000;
  await page.evaluate((to) => { location.hash = to; }, hash);
  await when(isThere);
  const now = Date.now() / 1000;
  hidden.sum += now - hidden.since;
  hidden.since = null;
  if (hidden.last) frames.push({ time: now - hidden.sum, data: hidden.last });
  hidden.last = null;
}
const isDrawn = () => document.querySelector(".picture-stage .under")?.naturalWidth > 0 && document.querySelector(".headgrid canvas")?.width > 10;

// What the model sees in a boot, and how; a head is switched off; the layers; the tour.
await seconds(1.8);
await page.locator(".flow button.primary").click();
await seconds(1.6);
await open("#model=small&view=attention&example=clothes-0&layer=3&head=1&lang=en", isDrawn);
await seconds(1);
const stage = await page.locator(".picture-stage").boundingBox();
for (const [x, y] of [[0.3, 0.6], [0.6, 0.6], [0.85, 0.4]]) {
  await page.mouse.move(stage.x + x * stage.width, stage.y + y * stage.height, { steps: 4 });
  await seconds(0.5);
}
await page.locator(".controls button", { hasText: "Switch this head off" }).click();
await seconds(1.7);
await open("#model=small&view=lens&example=clothes-9&lang=en", () => document.querySelectorAll(".lens .lines-chart polyline").length > 0);
await seconds(2.2);
await open("#model=small&view=tour&step=1&lang=en", () => Boolean(document.querySelector(".tip-handle")));
await page.focus(".tip-handle");
for (const key of ["ArrowUp", "ArrowUp", "ArrowUp", "ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowLeft"]) {
  await page.keyboard.press(key);
  await seconds(0.22);
}
await seconds(0.8);
await open("#model=small&view=tour&step=2&lang=en", () => document.querySelector(".patches img")?.naturalWidth > 0 && document.querySelectorAll(".patch-cells button").length > 0);
for (const patch of [1, 2, 6, 10, 9, 5]) {
  await page.locator(".patch-cells button").nth(patch).hover();
  await seconds(0.4);
}
await open("#model=small&view=tour&step=3&lang=en", () => document.querySelectorAll(".layer-name").length > 0 && document.querySelectorAll(".tour-bars *").length > 0);
await seconds(0.8);
for (const layer of [0, 1, 2]) {
  await page.locator(".layer-name").nth(layer).click();
  await seconds(0.8);
}
await seconds(0.6);
await session.send("Page.stopScreencast");
await browser.close();

const lines = [];
frames.forEach(({ data }, at) => {
  const name = join(folder, `${String(at).padStart(5, "0")}.jpg`);
  writeFileSync(name, Buffer.from(data, "base64"));
  const next = frames[at + 1]?.time ?? frames[at].time + 0.2;
  lines.push(`file '${name}'`, `duration ${(next - frames[at].time).toFixed(4)}`);
});
writeFileSync(join(folder, "frames.txt"), `${lines.join("\n")}\n`);
console.error(`${frames.length} frames`);
