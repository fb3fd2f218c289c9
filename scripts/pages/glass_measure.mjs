// Times of the page of `vitreous serve`, for people to read; nothing is judged by them: glass_measure.mjs LANGUAGE_MODEL
// Called by scripts/check_glass --measure.

import { Kit, serve } from "./kit.mjs";

const [path] = process.argv.slice(2);
// Twenty tokens or so, and what is typed behind them: tokens grow, and new ones begin.
const TEXT = "The capital of France is a city that many people like to visit in spring, when the trees";
const TYPED = " are green and birds sing";
const server = await serve(process.env.VITREOUS, ["builtin:small", `lm=${path}`, "--port", "0"]);
const kit = await new Kit({ server, vitreous: process.env.VITREOUS, root: process.env.ROOT }).start();

const sorted = (times) => [...times].sort((a, b) => a - b);
const say = (name, times) => {
  const [all, share] = [sorted(times), (part) => sorted(times)[Math.floor(part * (times.length - 1))].toFixed(0)];
  console.log(`${name}: ${share(0.5)} ms (median of ${all.length}), 90 % within ${share(0.9)} ms, the slowest ${all.at(-1).toFixed(0)} ms`);
};

// From here on the page notes when a key was pressed, and when the first frame after that showed what the new values look like.
function watch() {
  const times = { pressed: 0, input: 0, picture: 0, answer: 0 };
  window.times = times;
  const frame = (name) => requestAnimationFrame(() => { times[name] ||= performance.now(); });
  addEventListener("keydown", () => Object.assign(times, { pressed: performance.now(), input: 0, picture: 0, answer: 0 }), true);
  vitreous.on((change) => {
    if (change.has("input") || change.has("edits")) times.input ||= performance.now();
    if (change.has("answer") && times.input) frame("answer");
  });
  const { putImageData } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.putImageData = function (...given) {
    putImageData.apply(this, given);
    if (times.input && this.canvas.closest("#view")) frame("picture");
  };
}

// Presses a key and waits for what it does.
async function press(page, key) {
  await page.evaluate(() => Object.assign(times, { pressed: 0, input: 0, picture: 0, answer: 0 }));
  await page.keyboard.press(key);
  const isDone = () => times.pressed && times.picture && times.answer;
  for (const end = Date.now() + 10_000; !(await page.evaluate(isDone)); await page.waitForTimeout(10)) {
    if (Date.now() > end) throw new Error(`${key} changes nothing: ${JSON.stringify(await page.evaluate(() => times))}`);
  }
  await kit.settled(page);
  return page.evaluate(() => [times.picture - times.pressed, times.answer - times.pressed]);
}

async function measured(name, page, keys) {
  await page.evaluate(watch);
  const times = [];
  for (const key of keys) times.push(await press(page, key));
  say(`${name}, until the new picture`, times.map(([picture]) => picture));
  say(`${name}, until the new answer`, times.map(([, answer]) => answer));
  await kit.close(page);
}

// First paint, and the bytes of the page without models.
const first = await kit.page("#model=small");
for (const view of ["attention", "lens", "parts", "compare", "flow"]) {
  await first.evaluate((view) => vitreous.set({ view }), view);
  await kit.settled(first);
}
const { paint, bytes } = await first.evaluate(() => ({
  paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime,
  bytes: performance.getEntriesByType("resource").filter(({ name }) => name.includes("/glass/app/")).reduce((sum, { decodedBodySize }) => sum + decodedBodySize, 0),
}));
console.log(`first paint after ${paint?.toFixed(0)} ms; the page has ${(bytes / 1000).toFixed(0)} kB`);
await kit.close(first);

// The small ViT: a head is switched off and on by a key.
for (const view of ["attention", "flow"]) {
  const page = await kit.page(`#model=small&view=${view}&layer=3&head=1`);
  if (view === "attention") await page.locator(".controls button", { hasText: "Switch this head off" }).focus();
  else await page.evaluate(() => addEventListener("keydown", ({ key }) => { if (key === "x") vitreous.edit("blocks.3.attention.heads.1", vitreous.edited("blocks.3.attention.heads.1") ? null : { do: "zero" }); }));
  await measured(`small ViT, ${view}, a head off and on`, page, Array(20).fill(view === "attention" ? "Enter" : "x"));
}

// The language model: letters are typed behind a text, so that the number of tokens changes.
for (const view of ["flow", "attention", "lens"]) {
  const page = await kit.page(`#model=lm&view=${view}&text=${encodeURIComponent(TEXT)}`);
  console.log(`${await page.evaluate(() => vitreous.input.tokens.length)} tokens`);
  await page.locator("#give textarea").focus();
  await page.keyboard.press("Control+End");
  if (view === "lens") {
    // Its picture is a chart.
    await page.evaluate(() => new MutationObserver(() => { if (window.times?.input) requestAnimationFrame(() => { times.picture ||= performance.now(); }); }).observe(document.querySelector(".lens .chart"), { childList: true, subtree: true }));
  }
  await measured(`language model, ${view}, a letter typed`, page, [...TYPED].map((letter) => (letter === " " ? "Space" : letter)));
}

// A slider is dragged at every frame.
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
console.log(`dragging: ${((1000 * frames.length) / frames.reduce((sum, time) => sum + time, 0)).toFixed(0)} frames/s, of 100 frames the slowest takes ${sorted(frames)[Math.floor(0.99 * frames.length)].toFixed(1)} ms`);
await kit.browser.close();
await server.stop();
