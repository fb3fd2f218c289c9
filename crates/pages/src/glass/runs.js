// Training runs: a list with their state, curves that grow while a run goes on, what its report has, and two runs side by side.
//
// The server says when something is new (server-sent events) and draws the charts with the code of `vitreous report`; here they are put
// in place, so that a run in this page and its report look the same.

import { choice, clear, h } from "./dom.js";
import { Curves } from "./views/curves.js";

export const id = "runs";
export const title = { en: "Runs", zh: "训练" };
export const needs = "none";

// Charts are drawn again at most so often while lines arrive, in milliseconds.
const BETWEEN_DRAWINGS = 700;
const MOST_BETWEEN_DRAWINGS = 4000;

// Sections of an evaluation; pictures stand behind them.
const OF_EVALUATION = ["curves", "validation", "confusion", "classes", "calibration"];

const words = {
  runs: { en: "Training runs", zh: "训练记录" },
  name: { en: "Run", zh: "名称" },
  task: { en: "Task", zh: "任务" },
  state: { en: "State", zh: "状态" },
  progress: { en: "Progress", zh: "进度" },
  score: { en: "Validation", zh: "验证" },
  running: { en: "running", zh: "训练中" },
  finished: { en: "finished", zh: "已完成" },
  stopped: { en: "stopped", zh: "已停止" },
  removed: { en: "removed", zh: "已移除" },
  epochs: { en: "epoch {epoch} of {epochs}", zh: "第 {epoch} 轮，共 {epochs} 轮" },
  steps: { en: "step {step} of {steps}", zh: "第 {step} 步，共 {steps} 步" },
  inside: { en: "Look inside this model", zh: "查看这个模型的内部" },
  compare: { en: "Compare with", zh: "与之比较" },
  alone: { en: "no other", zh: "不比较" },
  none: { en: "There are no training runs yet. Start one beside this server and it appears here:", zh: "还没有训练记录。在启动此服务器的目录里开始一次训练，它就会出现在这里：" },
  noFolder: { en: "This server shows no training runs. Start it where there is a folder `runs`, or name one:", zh: "此服务器不显示训练记录。请在含有 `runs` 文件夹的目录中启动它，或指定一个文件夹：" },
  gone: { en: "The run {name} was removed or moved while it was watched. What is shown is the last that was seen.", zh: "训练 {name} 在查看期间被移除或移动。下面显示的是最后看到的内容。" },
  missing: { en: "There is no run {name} here: it was removed or moved.", zh: "这里没有名为 {name} 的训练：它已被移除或移动。" },
  live: { en: "Live: curves grow as the run writes them.", zh: "实时：曲线随训练进行不断延伸。" },
  step: { en: "Step {step}: loss {loss}", zh: "第 {step} 步：损失 {loss}" },
  ended: { en: "The run {name} is {state}.", zh: "训练 {name}：{state}。" },
  choose: { en: "Choose a run to see its curves.", zh: "选择一次训练，查看它的曲线。" },
};

let view = null;

export async function mount(container, app) {
  await Promise.all([app.style("report.css"), app.style("runs.css")]);
  view = new Runs(container, app);
  await view.list();
}

export function unmount() {
  view?.close();
  view = null;
}

export function update(change) {
  if (change.has("step")) view?.open();
  else if (change.has("models")) view?.list();
}

class Runs {
  constructor(container, app) {
    [this.app, this.runs, this.run, this.smoothing, this.turn] = [app, [], null, 0, 0];
    this.table = h("div", { class: "scroll run-list" });
    this.head = h("div", { class: "run-head" });
    this.report = h("div", { class: "run-report" });
    container.append(h("h2", {}, this.t("runs")), this.table, this.head, this.report);
    this.report.addEventListener("input", (event) => {
      if (event.target.id === "smoothing") this.smooth(Number(event.target.value));
    });
    this.stopList = app.events("/glass/events", { runs: () => this.list() });
  }

  t(key, values) { return this.app.t(words[key], values); }

  close() {
    this.turn++;
    this.stopList?.();
    this.leave();
  }

  leave() {
    this.stopRun?.();
    this.stopRun = null;
    clearTimeout(this.timer);
    this.timer = null;
  }

  // ---- The list.

  async list() {
    const { folder, runs } = await this.app.get("/glass/runs");
    this.runs = runs;
    if (!runs.length) {
      const line = folder ? "vitreous train" : "vitreous serve --runs DIR";
      this.table.replaceChildren(h("p", {}, this.t(folder ? "none" : "noFolder")), h("pre", {}, line));
      if (!this.name) clear(this.report);
    } else {
      const heads = ["name", "task", "state", "progress", "score"];
      const body = runs.map((run) => this.row(run));
      this.table.replaceChildren(h("table", {}, h("thead", {}, h("tr", {}, heads.map((name) => h("th", { scope: "col" }, this.t(name))))), h("tbody", {}, body)));
    }
    this.open();
  }

  row(run) {
    const isOpen = run.name === this.name;
    const link = h("a", { href: this.app.link({ view: "runs", step: run.name }), "aria-current": isOpen ? "true" : null }, run.name);
    return h("tr", { class: isOpen ? "chosen" : "" }, h("th", { scope: "row" }, link), h("td", {}, run.task ?? "–"), h("td", {}, this.badge(run.state)),
      h("td", {}, this.progress(run)), h("td", { class: "number" }, run.score ? `${run.score.text} ${run.score.label}` : "–"));
  }

  badge(state) { return h("span", { class: `badge ${state}` }, this.t(state)); }

  progress(run) {
    const round = (epoch) => (Number.isInteger(epoch) ? String(epoch) : epoch.toFixed(1));
    const text = run.epochs && run.epoch !== null ? this.t("epochs", { epoch: round(run.epoch), epochs: run.epochs }) : this.t("steps", { step: run.step, steps: run.steps ?? "?" });
    const share = run.steps ? Math.min(1, run.step / run.steps) : 0;
    return h("div", { class: "progress" }, h("span", {}, text), h("span", { class: "progress-track", "aria-hidden": "true" }, h("i", { style: { width: `${100 * share}%` } })));
  }

  // ---- One run, or two beside each other: the address has `NAME` or `NAME/OTHER`.

  open() {
    const [named, beside] = (this.app.state.step ?? "").split("/");
    // The address of another view's step is none of a run.
    const known = (name) => this.runs.some((run) => run.name === name);
    const usual = known(this.name) ? this.name : this.runs[0]?.name ?? null;
    const name = named && (known(named) || Number.isNaN(Number(named))) ? named : usual;
    const other = beside && beside !== name && known(beside) ? beside : null;
    if (name === this.name && other === this.other) {
      this.drawHead();
      return;
    }
    this.leave();
    Object.assign(this, { name, other, run: null, last: null, isGone: false, sections: null, pictures: [] });
    clear(this.head);
    clear(this.report);
    if (!name) return;
    for (const row of this.table.querySelectorAll("tbody tr")) {
      const isOpen = row.querySelector("a")?.textContent === name;
      row.classList.toggle("chosen", isOpen);
      isOpen ? row.querySelector("a").setAttribute("aria-current", "true") : row.querySelector("a")?.removeAttribute("aria-current");
    }
    this.watch();
  }

  watch() {
    const path = `/glass/runs/${encodeURIComponent(this.name)}`;
    // `state` comes first: what was written before is in the answer to the question that follows.
    this.stopRun = this.app.events(`${path}/events`, {
      state: (state) => this.state(state),
      metrics: (line) => this.metrics(line),
    });
    this.fetch(true);
  }

  state(state) {
    if (state.state === "removed") {
      this.isGone = true;
      this.leave();
      if (this.run) this.run.state = "removed";
      this.drawHead();
      this.app.say(this.t("gone", { name: this.name }));
      return;
    }
    if (this.run && this.run.state !== state.state) this.app.say(this.t("ended", { name: this.name, state: this.t(state.state) }));
    if (this.run) this.run = { ...this.run, ...state };
    this.drawHead();
    this.later(true);
  }

  metrics(line) {
    if (this.run && Number.isFinite(line.step)) this.run.step = Math.max(this.run.step ?? 0, line.step);
    if (Number.isFinite(line.loss)) this.last = line;
    this.drawHead();
    // What an evaluation or an epoch adds is in other sections, too.
    this.later("val_loss" in line || "gradient_norms" in line || "update_ratios" in line);
  }

  // Draws soon: once for all lines of a moment.
  later(isWhole) {
    this.isWhole ||= isWhole;
    this.timer ??= setTimeout(() => {
      this.timer = null;
      const isWhole = this.isWhole;
      this.isWhole = false;
      this.fetch(isWhole);
    }, Math.min(Math.max(BETWEEN_DRAWINGS, 5 * (this.took ?? 0)), MOST_BETWEEN_DRAWINGS));
  }

  async fetch(isWhole) {
    const turn = ++this.turn;
    const path = `/glass/runs/${encodeURIComponent(this.name)}`;
    const begun = performance.now();
    try {
      const [run, both] = await Promise.all([this.app.get(path), this.other ? this.app.get(`${path}/beside/${encodeURIComponent(this.other)}`) : null]);
      // A long run takes the server a moment: then it is asked less often.
      this.took = performance.now() - begun;
      if (turn !== this.turn) return;
      const sections = (both ?? run).sections;
      // A run that is being removed loses its files one by one: what was seen of it stays.
      const hasCurves = (all) => all?.some(({ id }) => id === "curves");
      if (!both && hasCurves(this.sections) && !hasCurves(sections)) return;
      this.run = run;
      this.drawHead();
      this.sections = sections;
      const isFirst = !this.report.firstChild;
      this.drawSections(isWhole || isFirst);
      if (isWhole && !both) this.fetchPictures(this.name);
    } catch (error) {
      if (turn !== this.turn || this.isGone) return;
      // It was removed, which an event will say: what was seen of it stays.
      if (error.status === 404 && this.run) return;
      this.report.replaceChildren(h("p", { class: "note warn" }, error.status === 404 ? this.t("missing", { name: this.name }) : error.message));
    }
  }

  // What needs the run's data and its model takes longer: it comes behind the rest.
  async fetchPictures(name) {
    const { sections } = await this.app.get(`/glass/runs/${encodeURIComponent(name)}/pictures`).catch(() => ({ sections: [] }));
    if (name !== this.name || this.other || !this.sections) return;
    this.pictures = sections;
    this.drawSections(true);
  }

  drawHead() {
    const { run } = this;
    if (!run) return;
    const others = this.runs.filter((one) => one.name !== this.name).map((one) => [one.name, one.name]);
    const isFocused = this.head.querySelector("select") === document.activeElement && document.activeElement;
    if (isFocused) return;
    const line = run.state === "running" && this.last ? this.t("step", { step: this.last.step, loss: this.last.loss.toPrecision(4) }) : "";
    this.head.replaceChildren(
      h("div", { class: "row" }, h("h3", {}, run.name), this.badge(run.state), run.state !== "removed" && this.progress(run), h("span", { class: "number run-line" }, line)),
      h("div", { class: "row" },
        run.model && h("a", { class: "button primary", href: this.app.link({ model: run.model, view: "flow", step: null }) }, this.t("inside")),
        others.length > 0 && choice(this.t("compare"), [["", this.t("alone")], ...others], this.other ?? "", (other) => this.app.set({ step: other ? `${this.name}/${other}` : this.name })),
        run.state === "running" && h("span", { class: "note" }, this.t("live"))),
      this.isGone ? h("p", { class: "note warn", role: "status" }, this.t("gone", { name: this.name })) : "",
      ...(run.faults ?? []).map((fault) => h("p", { class: "note warn" }, fault)));
  }

  // ---- The sections that the server wrote.

  drawSections(isWhole) {
    const behind = this.sections.findLastIndex(({ id }) => OF_EVALUATION.includes(id)) + 1;
    const sections = this.sections.toSpliced(behind, 0, ...this.pictures);
    const wanted = isWhole ? sections : sections.filter(({ id }) => id === "curves");
    if (isWhole) {
      const ids = new Set(sections.map(({ id }) => id));
      for (const old of [...this.report.children]) if (!ids.has(old.dataset.section)) old.remove();
    }
    let place = this.report.firstElementChild;
    for (const { id, heading, html } of wanted) {
      let section = [...this.report.children].find((one) => one.dataset.section === id);
      if (!section) {
        section = h("section", { dataset: { section: id } }, h("h3", {}, heading), h("div", {}));
        this.report.insertBefore(section, place);
      }
      place = section.nextElementSibling;
      this.fill(section.lastElementChild, html);
    }
  }

  fill(element, html) {
    if (element.written === html) return;
    element.written = html;
    // Inline styles are not allowed in this page; set by a script they are.
    const fresh = h("div", {});
    fresh.innerHTML = html.replaceAll(" style=\"", " data-style=\"");
    for (const styled of fresh.querySelectorAll("[data-style]")) {
      styled.style.cssText = styled.dataset.style;
      styled.removeAttribute("data-style");
    }
    const [before, after] = [element.querySelector(".charts"), fresh.querySelector(".charts")];
    if (before && after && !element.querySelector(".charts ~ *")) before.replaceChildren(...this.reread(before, after));
    else element.replaceChildren(...fresh.childNodes);
    const slider = element.querySelector("#smoothing");
    if (slider) slider.value = this.smoothing;
    const curves = [...element.querySelectorAll(".curves")].map((one) => one.curves ?? new Curves(one));
    curves.forEach((one) => {
      one.element.curves = one;
      one.smooth(this.smoothing);
    });
  }

  // The charts again with what is new: whoever reads values in one goes on reading.
  reread(before, after) {
    const old = new Map([...before.querySelectorAll(".curves")].map((one) => [one.getAttribute("aria-label"), one.curves]));
    const focused = document.activeElement?.closest?.(".curves")?.getAttribute("aria-label");
    for (const element of after.querySelectorAll(".curves")) {
      const curves = new Curves(element);
      element.curves = curves;
      const was = old.get(element.getAttribute("aria-label"));
      if (was && was.at !== null) requestAnimationFrame(() => curves.show(Math.min(was.at, curves.steps.length - 1)));
      if (focused === element.getAttribute("aria-label")) requestAnimationFrame(() => element.focus());
    }
    return [...after.childNodes];
  }

  smooth(weight) {
    this.smoothing = weight;
    const output = this.report.querySelector("#smoothing-value");
    if (output) output.textContent = weight.toFixed(2);
    for (const element of this.report.querySelectorAll(".curves")) element.curves?.smooth(weight);
  }
}
