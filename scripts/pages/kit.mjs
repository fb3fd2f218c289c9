// What checks of the page of `vitreous serve` share: a server, pages of it, and what is wrong with them.

import { createRequire } from "node:module";
import { spawn } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { contrast, overflow, textAlternatives, layoutShift, watchLayout } from "./inside.mjs";

const { chromium } = createRequire(import.meta.url)(join(process.env.NODE_PATH, "playwright-core"));

const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream",
];
const READY_MS = 60_000;
const SETTLED_MS = 30_000;
const MOST_SHIFT = 0.02;

// Servers that run: a check that fails half-way leaves none behind.
const servers = new Set();
process.on("exit", () => servers.forEach((server) => server.kill("SIGKILL")));
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(1));

// A server of these models; `stop()` ends it.
export async function serve(vitreous, words) {
  const server = spawn(vitreous, ["serve", ...words], { stdio: ["ignore", "pipe", "pipe"] });
  servers.add(server);
  server.on("exit", () => servers.delete(server));
  const said = [];
  const address = await new Promise((done, failed) => {
    const read = (text) => {
      said.push(String(text));
      const found = said.join("").match(/http:\/\/[\d.]+:\d+/);
      if (found) done(found[0]);
    };
    server.stdout.on("data", read);
    server.stderr.on("data", read);
    server.on("exit", (code) => failed(new Error(`the server ended with ${code}: ${said.join("")}`)));
    setTimeout(() => failed(new Error(`the server says no address: ${said.join("")}`)), READY_MS);
  });
  const ready = Date.now() + READY_MS;
  while (!(await fetch(`${address}/v2/health/ready`).then((answer) => answer.ok, () => false))) {
    if (Date.now() > ready) throw new Error(`the server is not ready: ${said.join("")}`);
    await new Promise((done) => setTimeout(done, 100));
  }
  const ended = new Promise((done) => server.on("exit", done));
  return { address, said, stop: () => (server.kill("SIGTERM"), ended) };
}

export class Kit {
  constructor({ server, vitreous, root, work, runs, shots }) {
    Object.assign(this, { server, vitreous, root, work, runs, shots, faults: new Map() });
    if (shots) mkdirSync(shots, { recursive: true });
  }

  async start() {
    this.browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: FLAGS });
    return this;
  }

  // A page at this address within the page, when it shows its view. What it does wrong is kept for `wrongOf`.
  async page(hash = "", { width = 1440, height = 900, colorScheme = "light", ...more } = {}) {
    const context = await this.browser.newContext({ viewport: { width, height }, colorScheme, deviceScaleFactor: 1, reducedMotion: "reduce", locale: "en-US", ...more });
    await context.grantPermissions(["clipboard-read", "clipboard-write", "microphone", "camera"], { origin: this.server.address });
    const page = await context.newPage();
    const faults = [];
    this.faults.set(page, faults);
    page.on("console", (message) => faults.push(`console: ${message.text()}`));
    page.on("pageerror", (error) => faults.push(`script: ${error.message}`));
    page.on("request", (request) => {
      const url = request.url();
      if (!url.startsWith(this.server.address) && !/^(data|blob):/.test(url)) faults.push(`request to the outside: ${url.slice(0, 100)}`);
    });
    // A stream of events never ends, and is not waited for.
    const open = new Set();
    page.on("request", (request) => { if (!request.url().includes("/events")) open.add(request); });
    for (const end of ["requestfinished", "requestfailed"]) page.on(end, (request) => open.delete(request));
    page.openRequests = open;
    await page.addInitScript(watchLayout);
    await page.goto(`${this.server.address}/${hash}`, { waitUntil: "load" });
    const end = Date.now() + SETTLED_MS;
    const isReady = () => Boolean(globalThis.vitreous && (vitreous.answer || vitreous.trouble || vitreous.model?.takes === "audio"));
    while (!(await page.evaluate(isReady)) && Date.now() < end) await page.waitForTimeout(30);
    await this.settled(page);
    return page;
  }

  // When nothing is asked of the server any more, nothing on the page says that it is busy, and what was asked is drawn.
  async settled(page) {
    const end = Date.now() + SETTLED_MS;
    const isBusy = async () => page.openRequests.size || (await page.evaluate(() => document.querySelector("[aria-busy=true]") !== null));
    for (let quiet = 0; quiet < 4; quiet = (await isBusy()) ? 0 : quiet + 1) {
      if (Date.now() > end) throw new Error(`still asked for: ${[...page.openRequests].map((request) => request.url()).join(", ")}`);
      await page.waitForTimeout(40);
    }
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  }

  // What it did wrong so far: console messages, requests to the outside.
  wrongOf(page) {
    const faults = this.faults.get(page) ?? [];
    return faults.splice(0);
  }

  // What is wrong with what it shows: contrast, names, overflow, jumps.
  async scan(page) {
    const shift = await page.evaluate(layoutShift);
    return [
      ...(shift >= MOST_SHIFT ? [`the page jumps: layout shift ${shift.toFixed(3)}`] : []),
      ...(await page.evaluate(overflow)), ...(await page.evaluate(textAlternatives)), ...(await page.evaluate(contrast)),
    ];
  }

  async shot(page, name, options = {}) {
    if (this.shots) await page.screenshot({ path: join(this.shots, `${name}.png`), ...options });
  }

  async close(page) {
    const faults = this.wrongOf(page);
    await page.context().close();
    return faults;
  }
}

// Waits until `probe` of the page gives something else than `before`; gives that.
export async function changed(page, probe, before, most = 5000) {
  const end = Date.now() + most;
  for (;;) {
    const now = await page.evaluate(probe);
    if (now !== before && now !== "" && now !== null) return now;
    if (Date.now() > end) throw new Error(`nothing changed: ${JSON.stringify(now)}`);
    await page.waitForTimeout(30);
  }
}

// A file as if it were dropped on the page.
export async function drop(page, { name, type, bytes }, selector = "body") {
  const base64 = Buffer.from(bytes).toString("base64");
  await page.evaluate(([name, type, base64, selector]) => {
    const data = new DataTransfer();
    const content = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    data.items.add(new File([content], name, { type }));
    const target = document.querySelector(selector);
    for (const kind of ["dragover", "drop"]) target.dispatchEvent(new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
  }, [name, type, base64, selector]);
}
