// What every view looks like, at three widths, in light and in dark, in both languages: contrast, names, overflow, jumps; its size.

const WIDTHS = { phone: [390, 844], desk: [1440, 900], wall: [2560, 1440] };
const MOST_BYTES = 500_000;
const VIEWS = {
  flow: "#model=small&view=flow&example=clothes-0", stage: "#model=small&view=flow&step=blocks.0.attention", values: "#model=small&view=flow&step=blocks.0.mlp",
  attention: "#model=small&view=attention&token=6&layer=4&head=2", lens: "#model=small&view=lens",
  parts: "#model=small&view=parts&edits=blocks.3.attention.heads.1:zero,blocks.2.mlp:scale:0.5", compare: "#model=small&view=compare&other-example=clothes-4",
  "text-attention": "#model=lm&view=attention&text=Once upon a time there was", "text-lens": "#model=lm&view=lens&text=Once upon a time there was", masked: "#model=masked&view=flow", sentence: "#model=sentence&view=attention", speech: "#model=speech",
};

export const checks = [
  ...Object.entries(VIEWS).map(([name, hash]) => [`the view ${name} at three widths, light and dark`, (kit) => looks(kit, name, hash)]),
  ["every text is there in Chinese", inChinese],
  ["the page is small", isSmall],
  ["colours can be chosen", chosenColours],
];

async function looks(kit, name, hash) {
  const faults = [];
  for (const [screen, [width, height]] of Object.entries(WIDTHS)) {
    const page = await kit.page(hash, { width, height });
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
      await kit.settled(page);
      faults.push(...[...(await kit.scan(page)), ...kit.wrongOf(page)].map((text) => `${screen} ${colorScheme}: ${text}`));
      await kit.shot(page, `${name}-${screen}-${colorScheme}`, { fullPage: screen === "phone" });
    }
    await kit.close(page);
  }
  return faults;
}

async function inChinese(kit) {
  const faults = [];
  for (const [name, hash] of Object.entries(VIEWS)) {
    const page = await kit.page(`${hash}&lang=zh`);
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
  if (process.env.MEASURE) await measured(kit, page);
  return bytes < MOST_BYTES ? [] : [`the page is ${bytes} bytes`];
}

// Times for people to read; nothing is judged by them.
async function measured(kit, page) {
  const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
  console.log(`      first paint after ${paint?.toFixed(0)} ms`);
  for (const [name, hash] of [["small ViT, a head switched off", "#model=small&view=attention"], ["language model", `#model=${process.env.MEASURE}&view=attention&text=The capital of France is a city that many people like to visit in spring when the trees are green`]]) {
    const other = await kit.page(hash);
    const times = [];
    for (let at = 0; at < 12; at++) {
      times.push(await other.evaluate(async (at) => {
        const begun = performance.now();
        const shown = document.querySelector("#answer .time");
        const canvas = document.querySelector(".headgrid canvas");
        const drawn = new Promise((done) => {
          const put = canvas.getContext("2d").putImageData;
          canvas.getContext("2d").putImageData = function (...words) { put.apply(this, words); requestAnimationFrame(done); };
        });
        vitreous.set({ edits: [{ path: `blocks.${at % 6}.attention.heads.0`, do: "scale", factor: 0.1 + at / 20 }] }, { replace: true });
        await drawn;
        delete canvas.getContext("2d").putImageData;
        return [performance.now() - begun, shown.textContent];
      }, at));
    }
    console.log(`      ${name}: ${times.map(([ms]) => ms.toFixed(0)).join(" ")} ms until the new picture`);
    await kit.close(other);
  }
  const drag = await kit.page("#model=small&view=parts&edits=blocks.1.mlp:scale:1");
  const frames = await drag.evaluate(() => new Promise((done) => {
    const input = document.querySelector(".edit input[type=range]");
    const times = [];
    let last = performance.now();
    const frame = (now) => {
      times.push(now - last);
      last = now;
      input.value = String(1 + Math.sin(times.length / 8));
      input.dispatchEvent(new Event("input"));
      if (times.length < 180) requestAnimationFrame(frame);
      else done(times.slice(1));
    };
    requestAnimationFrame(frame);
  }));
  frames.sort((a, b) => a - b);
  console.log(`      dragging: ${(1000 * frames.length / frames.reduce((sum, time) => sum + time, 0)).toFixed(0)} frames/s, the slowest of 100 takes ${frames[Math.floor(0.99 * frames.length)].toFixed(1)} ms`);
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

