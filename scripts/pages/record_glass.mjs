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

// Frames come when something changes, each with its time.
const frames = [];
const session = await context.newCDPSession(page);
session.on("Page.screencastFrame", ({ data, sessionId, metadata }) => {
  frames.push({ time: metadata.timestamp, data });
  session.send("Page.screencastFrameAck", { sessionId }).catch(() => {});
});
await session.send("Page.startScreencast", { format: "jpeg", quality: 88, everyNthFrame: 1 });
const start = Date.now();
const until = async (seconds) => page.waitForTimeout(Math.max(0, start + 1000 * seconds - Date.now()));
const open = (hash) => page.evaluate((to) => { location.hash = to; }, hash);

// What the model thinks of a boot, then its attention; heads are switched off; the layers; the tour.
await until(2.5);
await open("#model=small&view=attention&example=clothes-0&layer=3&head=1&lang=en");
await until(5);
await open("#model=small&view=attention&example=clothes-9&layer=3&head=1&lang=en");
await until(7);
await open("#model=small&view=lens&example=clothes-9&lang=en");
await until(9.5);
await open("#model=small&view=tour&step=1&lang=en");
await page.waitForSelector(".tip-handle");
await page.focus(".tip-handle");
for (const key of ["ArrowUp", "ArrowUp", "ArrowUp", "ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowLeft"]) {
  await page.keyboard.press(key);
  await page.waitForTimeout(170);
}
await until(13);
await open("#model=small&view=tour&step=2&lang=en");
await page.waitForSelector(".patch-cells button");
for (const patch of [1, 2, 6, 10, 9, 5]) {
  await page.locator(".patch-cells button").nth(patch).hover();
  await page.waitForTimeout(350);
}
await until(16);
await open("#model=small&view=tour&step=3&lang=en");
await page.waitForSelector(".layer-name");
await until(17);
for (const layer of [0, 1, 2]) {
  await page.locator(".layer-name").nth(layer).click();
  await page.waitForTimeout(700);
}
await until(20);
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
