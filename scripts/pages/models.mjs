// Models that the checks make for themselves: a translator put together from a fixture, and a tiny model of pictures and texts that has
// looked at three colours.

import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { coloured } from "./png.mjs";

const TINY = [
  "model.image=16", "model.patch=8", "model.dim=24", "model.depth=2", "model.heads=2", "model.mlp_dim=32", "model.text_dim=16", "model.text_depth=1",
  "model.text_heads=2", "model.text_mlp_dim=32", "model.projection=12", "text.vocabulary=600", "train.batch=12", "train.epochs=2", "schedule.warmup_epochs=1",
];

export function translator(root, work) {
  const from = join(root, "crates/vitreous/tests/fixtures/old_runs/translation");
  const folder = join(work, "translator");
  mkdirSync(folder);
  for (const name of ["model/config.json", "model/model.safetensors", "tokenizer.json"]) copyFileSync(join(from, name), join(folder, name.split("/").at(-1)));
  return folder;
}

export function clip(vitreous, work) {
  const colours = { red: [210, 40, 30], green: [40, 190, 50], blue: [40, 50, 210] };
  const folder = join(work, "colours");
  mkdirSync(folder);
  const rows = ["image,caption,label,split"];
  for (let at = 0; at < 24; at++) {
    const [name, colour] = Object.entries(colours)[at % 3];
    writeFileSync(join(folder, `${at}.png`), coloured(16, (x, y) => colour.map((value) => Math.min(255, value + ((7 * x + 13 * y + at) % 23)))));
    rows.push(`${at}.png,something ${name},${name},${at < 18 ? "train" : "validation"}`);
  }
  writeFileSync(join(folder, "pairs.csv"), rows.join("\n"));
  const out = join(work, "clip");
  execFileSync(vitreous, ["train", "clip", "--data", join(folder, "pairs.csv"), "--out", out, ...TINY], { stdio: ["ignore", "ignore", "pipe"] });
  return join(out, "model");
}
