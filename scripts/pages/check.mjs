// Opens pages and says what is wrong with them: check.mjs SHOTS FILE.html... (SHOTS may be empty: no screenshots)
// Called by scripts/check_pages, which sets where Chromium and playwright-core are.

import { createRequire } from "node:module";
import { mkdirSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { interactions } from "./interactions.mjs";
import { contrast, layoutShift, overflow, textAlternatives, watchLayout } from "./inside.mjs";

const { chromium } = createRequire(import.meta.url)(join(process.env.NODE_PATH, "playwright-core"));

const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--hide-scrollbars",
];
const WIDTHS = { wide: { width: 1280, height: 800 }, phone: { width: 390, height: 844 } };
// A tenth of the cumulative layout shift that readers notice.
const MOST_SHIFT = 0.01;

const [shots, ...files] = process.argv.slice(2);
if (shots) mkdirSync(shots, { recursive: true });
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: FLAGS });
let wrong = 0;
for (const file of files) {
  for (const [screen, viewport] of Object.entries(WIDTHS)) {
    for (const colorScheme of ["light", "dark"]) {
      const found = await check(file, screen, viewport, colorScheme);
      console.log(`${found.length ? "WRONG" : "ok   "} ${basename(file)} ${screen} ${colorScheme}`);
      found.forEach((text) => console.log(`      ${text}`));
      wrong += found.length;
    }
  }
}
await browser.close();
console.log(wrong ? `wrong: ${wrong}` : `pages without faults: ${files.length}`);
if (shots) console.log(`screenshots: ${shots}`);
process.exit(wrong ? 1 : 0);

// What is wrong with one page on one screen.
async function check(file, screen, viewport, colorScheme) {
  const wrong = [];
  const address = pathToFileURL(resolve(file)).href;
  const context = await browser.newContext({ viewport, colorScheme, deviceScaleFactor: 1, reducedMotion: "reduce" });
  const page = await context.newPage();
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) wrong.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => wrong.push(`script: ${error.message}`));
  page.on("requestfailed", (request) => wrong.push(`request failed: ${short(request.url())}`));
  page.on("request", (request) => {
    const allowed = request.url() === address || request.url().startsWith("data:");
    if (!allowed) wrong.push(`request to the outside: ${short(request.url())}`);
  });
  await page.addInitScript(watchLayout);
  await page.goto(address, { waitUntil: "load" });
  await page.waitForTimeout(300);

  const shift = await page.evaluate(layoutShift);
  if (shift >= MOST_SHIFT) wrong.push(`the page jumps: layout shift ${shift.toFixed(3)}`);
  wrong.push(...(await page.evaluate(overflow)));
  wrong.push(...(await page.evaluate(textAlternatives)));
  wrong.push(...(await page.evaluate(contrast)));
  if (shots) {
    const name = join(shots, `${basename(file, ".html")}-${screen}-${colorScheme}`);
    await page.screenshot({ path: `${name}.png`, fullPage: true });
    await page.screenshot({ path: `${name}-first.png` });
  }

  const kind = await page.evaluate(() => document.body.dataset.page ?? "");
  for (const interaction of interactions[kind] ?? []) {
    const result = await interaction(page).catch((error) => [error.message.split("\n")[0]]);
    wrong.push(...result.map((text) => `${interaction.name}: ${text}`));
  }
  await context.close();
  return wrong;
}

function short(url) {
  return url.length > 100 ? `${url.slice(0, 100)}...` : url;
}
