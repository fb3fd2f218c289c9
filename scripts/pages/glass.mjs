// Uses the page of `vitreous serve` as a reader would, and says what is wrong: glass.mjs WORK SHOTS ONLY (SHOTS and ONLY may be empty)
// Called by scripts/check_glass, which sets where Chromium, playwright-core and the program are.

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { checks as reaching } from "./glass_checks.mjs";
import { checks as hostile } from "./glass_hostile.mjs";
import { checks as looks } from "./glass_looks.mjs";
import { checks as tour } from "./glass_tour.mjs";
import { checks as writing } from "./glass_texts.mjs";
import { Kit, serve } from "./kit.mjs";
import { clip, translator } from "./models.mjs";

const [work, shots, only] = process.argv.slice(2);
const root = process.env.ROOT;
const fixtures = {
  lm: "crates/models/tests/fixtures/generate/llama", masked: "crates/vitreous/tests/fixtures/texts/bert_masked",
  speech: "crates/train/tests/fixtures/transcribe/model", sentence: "crates/vitreous/tests/fixtures/texts/sentence_mean",
  answers: "crates/vitreous/tests/fixtures/texts/bert_answers",
};
const made = { translator: translator(root, work), clip: clip(process.env.VITREOUS, work) };
const runs = join(work, "runs");
mkdirSync(runs);
const models = ["builtin:small", "builtin:small-untrained", ...Object.entries(fixtures).map(([name, path]) => `${name}=${join(root, path)}`), ...Object.entries(made).map(([name, path]) => `${name}=${path}`), ...(process.env.MODELS ?? "").split(" ").filter(Boolean)];
const words = [...models, "--runs", runs, "--port", "0"];
const server = await serve(process.env.VITREOUS, words);
const kit = await new Kit({ server, vitreous: process.env.VITREOUS, root, work, runs, shots, words }).start();
Object.assign(kit, { words, fixtures, made });

const checks = [...reaching, ...writing, ...looks, ...tour, ...hostile].filter(([name]) => !only || name.includes(only));
let wrong = 0;
for (const [name, check] of checks) {
  const begun = Date.now();
  const found = await check(kit).catch((error) => [error.message.split("\n").slice(0, 3).join(" ")]);
  for (const page of kit.faults.keys()) {
    if (!page.isClosed()) found.push(...(await kit.close(page)));
    kit.faults.delete(page);
  }
  console.log(`${found.length ? "WRONG" : "ok   "} ${name} (${((Date.now() - begun) / 1000).toFixed(1)} s)`);
  found.forEach((text) => console.log(`      ${text}`));
  wrong += found.length;
}
await kit.browser.close();
await kit.server.stop();
console.log(wrong ? `wrong: ${wrong}` : `checks without faults: ${checks.length}`);
if (shots) console.log(`screenshots: ${shots}`);
process.exit(wrong ? 1 : 0);
