// Follows the tour to its end in both languages, watches a run that is training, and one that is removed.
// Called by glass.mjs, with the server's address, and for runs the program and a folder that the server shows.

import { spawn } from "node:child_process";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { looks } from "./glass_looks.mjs";

const STEPS = 8;
const TINY = [
  "model.patch=16", "model.dim=16", "model.depth=2", "model.heads=2", "model.mlp_dim=32", "train.batch=500", "output.log_steps=1", "output.eval_epochs=2",
];

// What every step must have, whatever it shows.
async function stepIsWhole(page, lang, step) {
  const wrong = [];
  await page.waitForSelector(".tour-figure > *");
  await page.waitForTimeout(600);
  const found = await page.evaluate(() => ({
    heading: document.querySelector(".tour-page h2")?.textContent ?? "",
    words: document.querySelector(".tour-words")?.textContent ?? "",
    attempt: document.querySelector(".tour-try")?.textContent ?? "",
    warnings: [...document.querySelectorAll(".tour-figure .warn")].map((one) => one.textContent),
    current: document.querySelector(".tour-steps [aria-current] .tour-number")?.textContent ?? "",
    language: document.documentElement.lang,
    overflow: document.documentElement.scrollWidth - innerWidth,
  }));
  const isChinese = /[\u4e00-\u9fff]/;
  if (found.current !== String(step)) wrong.push(`step ${step}: the list says ${found.current}`);
  for (const part of ["heading", "words", "attempt"]) {
    if (!found[part]) wrong.push(`step ${step}: no ${part}`);
    if (isChinese.test(found[part]) !== (lang === "zh")) wrong.push(`step ${step}: ${part} is in the other language: ${found[part].slice(0, 40)}`);
  }
  const count = found.words.split(/\s+/).length;
  if (lang === "en" && count > 120) wrong.push(`step ${step}: ${count} words`);
  if (found.warnings.length) wrong.push(`step ${step}: ${found.warnings.join("; ")}`);
  if (found.overflow > 0) wrong.push(`step ${step}: ${found.overflow} px too wide`);
  return wrong;
}

// What a reader does in each step, and what must change by it.
const attempts = {
  1: async (page) => {
    const cell = page.locator("table.by-hand tbody tr").nth(1).locator("td.share");
    const before = await cell.textContent();
    await page.focus(".tip-handle");
    for (let press = 0; press < 6; press++) await page.keyboard.press("ArrowUp");
    const after = await cell.textContent();
    const weights = await page.locator("table.by-hand td.share").allTextContents();
    const sum = weights.reduce((total, text) => total + Number.parseFloat(text), 0);
    return [before === after && `the weight stays ${before}`, Math.abs(sum - 100) > 0.3 && `the weights add up to ${sum}`];
  },
  2: async (page) => {
    const before = await page.locator(".tour-figure table").innerText();
    await page.locator(".patch-cells button").nth(5).click();
    await until(page, (text) => document.querySelector(".tour-figure table").innerText !== text, before);
    await until(page, () => document.querySelector(".patches img").naturalWidth > 0);
    return [];
  },
  3: async (page) => {
    const before = await page.locator(".tour-bars").innerText();
    await page.locator(".layer-name").first().click();
    await page.locator(".layer-name").nth(1).click();
    await until(page, (text) => document.querySelector(".tour-bars").innerText !== text, before);
    const off = await page.locator(".head-map[aria-pressed=true]").count();
    return [off !== 8 && `${off} heads are off`];
  },
  4: async (page) => {
    const before = await page.locator(".tour-bars").innerText();
    await setSlider(page, ".tour-figure .slider >> nth=2", 0);
    await until(page, (text) => document.querySelector(".tour-bars").innerText !== text, before);
    return [];
  },
  5: async (page) => {
    await until(page, () => document.querySelectorAll(".lens-chart polyline").length === 4);
    const before = await page.locator(".said").innerText();
    await page.locator(".flow-line .place").first().click();
    await until(page, (text) => document.querySelector(".said").innerText !== text, before);
    return [];
  },
  6: async (page) => {
    await page.locator(".tour-figure > .row button").click();
    await until(page, () => [...document.querySelectorAll(".sorted")].every((list) => list.children.length === 10));
    const right = await page.evaluate(() => [...document.querySelectorAll(".sorted")].map((list) => list.querySelectorAll(".right").length));
    return [!(right[1] >= 7 && right[0] <= 4) && `right: ${right.join(" before, ")} after training`];
  },
  7: async (page) => {
    const before = await page.locator(".tour-figure textarea").inputValue();
    // The token is drawn, and may be the mark of the end, which is said in place of a text: then it is drawn again.
    for (let press = 0; press < 20 && (await page.locator(".tour-figure textarea").inputValue()) === before; press++) {
      await page.locator(".tour-figure button.primary").click();
      await until(page, (text) => document.querySelector(".tour-figure textarea").value.length > text.length || document.querySelector(".tour-figure [role=status]").textContent, before);
    }
    return [(await page.locator(".tour-figure textarea").inputValue()).length <= before.length && "nothing was written"];
  },
  8: async (page) => {
    const cell = page.locator(".costs tbody td").first();
    const before = await cell.textContent();
    await setSlider(page, ".tour-figure .slider", 14);
    return [(await cell.textContent()) === before && "the costs stay"];
  },
};

// Waits until a test in the page holds. (Playwright's own way evaluates text, which the page does not allow.)
async function until(page, test, given, most = 10_000) {
  for (const end = Date.now() + most; !(await page.evaluate(test, given)); await page.waitForTimeout(50)) {
    if (Date.now() > end) throw new Error(`it did not happen: ${test}`.slice(0, 160));
  }
}

async function setSlider(page, selector, value) {
  await page.locator(`${selector} >> input`).evaluate((input, to) => {
    input.value = to;
    input.dispatchEvent(new Event("input", { bubbles: true }));
  }, value);
}

function follow(lang) {
  return async (kit) => {
    const wrong = [];
    const page = await kit.page(`#view=tour&lang=${lang}`);
    for (let step = 1; step <= STEPS; step++) {
      wrong.push(...(await stepIsWhole(page, lang, step)));
      const tried = await attempts[step](page).catch((error) => [error.message.split("\n")[0]]);
      wrong.push(...tried.filter(Boolean).map((text) => `step ${step}: ${text}`));
      wrong.push(...(await kit.scan(page)).map((text) => `step ${step}: ${text}`));
      await kit.shot(page, `tour-${step}-${lang}`);
      // Every second page is turned by the keyboard.
      if (step < STEPS) {
        if (step % 2) await page.locator(".tour-nav button.primary").click();
        else {
          await page.locator(".tour-page h2").focus();
          await page.evaluate(() => scrollTo(0, document.scrollingElement.scrollHeight));
          await page.keyboard.press("PageDown");
        }
        await until(page, (next) => document.querySelector(".tour-steps [aria-current] .tour-number")?.textContent === String(next), step + 1);
      }
    }

    wrong.push(...(await kit.close(page)));
    return wrong;
  };
}

function train(kit, name, epochs) {
  const child = spawn(kit.vitreous, ["train", "small", "--out", join(kit.runs, name), ...TINY, `train.epochs=${epochs}`], { stdio: "ignore" });
  child.over = new Promise((done) => child.on("exit", done));
  return child;
}

const pointsOf = (page) => page.evaluate(() => {
  const data = document.querySelector(".run-report .curves script")?.textContent;
  return data ? JSON.parse(data).series[0].x.length : 0;
});

async function watchesTraining(kit) {
  const wrong = [];
  const page = await kit.page("#view=runs&lang=en");
  const requests = [];
  page.on("request", (request) => requests.push(request.url()));
  const child = train(kit, "watched", 400);
  try {
    await page.locator(".run-list a", { hasText: "watched" }).click({ timeout: 20000 });
    await page.waitForSelector(".run-report .curves", { timeout: 30000 });
    const first = await pointsOf(page);
    await page.evaluate(() => { window.notReloaded = true; });
    await until(page, (before) => JSON.parse(document.querySelector(".run-report .curves script").textContent).series[0].x.length > before + 5, first, 30_000);
    if (!(await page.evaluate(() => window.notReloaded))) wrong.push("the page was loaded again");
    if (!(await page.locator(".run-head .badge.running").count())) wrong.push("it is not said to be running");
    // A server that has nothing new is not asked.
    child.kill("SIGINT");
    await child.over;
    await page.waitForSelector(".run-head .badge.stopped", { timeout: 10000 });
    await page.waitForTimeout(7000);
    const quiet = requests.length;
    await page.waitForTimeout(2500);
    if (requests.length > quiet) wrong.push(`it asks though nothing is new: ${requests.slice(quiet).join(", ")}`);
    wrong.push(...(await kit.scan(page)));
    await kit.shot(page, "runs");
  } finally {
    child.kill("SIGKILL");
  }

  wrong.push(...(await kit.close(page)));
  return wrong;
}

async function noticesRemoval(kit) {
  const wrong = [];
  const child = train(kit, "removed", 2);
  await child.over;
  const page = await kit.page("#view=runs&step=removed&lang=en");
  await page.waitForSelector(".run-report .curves", { timeout: 10000 });
  rmSync(join(kit.runs, "removed"), { recursive: true });
  await page.waitForSelector(".run-head .badge.removed", { timeout: 10000 });
  if (!(await page.locator(".run-report .curves").count())) wrong.push("the curves that were seen are gone");
  await until(page, () => ![...document.querySelectorAll(".run-list a")].some((link) => link.textContent === "removed"), null, 10_000);

  // It may have been asked for just as it was removed.
  wrong.push(...(await kit.close(page)).filter((fault) => !fault.includes("status of 404")));
  return wrong;
}

async function compares(kit) {
  const wrong = [];
  for (const name of ["one", "two"]) await train(kit, name, 2).over;
  const page = await kit.page("#view=runs&step=one/two&lang=en");
  await page.waitForSelector(".run-report [data-section=numbers] table", { timeout: 10000 });
  const series = await page.evaluate(() => JSON.parse(document.querySelector(".run-report .curves script").textContent).series.map(({ name }) => name));
  if (series.join() !== "one,two") wrong.push(`the curves are of ${series.join()}`);
  wrong.push(...(await kit.scan(page)));
  wrong.push(...(await kit.close(page)));
  return wrong;
}

export const checks = [
  ["the tour to its end, in English", follow("en")],
  ["the tour to its end, in Chinese", follow("zh")],
  ["a run that is training", watchesTraining],
  ["a run that is removed", noticesRemoval],
  ["two runs side by side", compares],
  ["runs at three widths, light and dark", async (kit) => [...(await looks(kit, "runs", "#view=runs&step=one")), ...(await looks(kit, "runs-two", "#view=runs&step=one/two"))]],
];
