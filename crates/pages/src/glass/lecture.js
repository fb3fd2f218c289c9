// Attention by its numbers, for one head and one query: Q, K, scores, softmax, weighted sum, each computed here again and compared
// with the model's own.

import { CellMap } from "./cells.js";
import { chips, readable } from "./tokens.js";
import { choice, h, map as mapCanvas } from "./dom.js";
import { heat } from "./views/heat.js";
import { minus, percent, quoted, scaleOf, short } from "./views/numbers.js";

const MOST_BARS = 24;
const MASKED = -3e38;

export class Lecture {
  constructor(app, { group, layer, path }, stage) {
    Object.assign(this, { app, group, layer, path, stage, key: null, turn: 0 });
    this.head = choice(app.t("head"), Array.from({ length: group.heads }, (_, head) => [head, String(head)]), app.head, (head) => app.set({ head: Number(head) }, { replace: true }));
    this.queries = h("div", { class: "lecture-queries" });
    this.steps = h("ol", { class: "lecture" });
    this.element = h("div", {}, h("div", { class: "controls" }, this.head), this.queries, this.steps);
    this.#build();
  }

  nameOf(token) {
    const { app } = this;
    const of = app.input.tokens?.[token];
    if (of) return readable(of.text);
    const { grid } = app.input;
    if (!grid) return String(token);
    if (token < grid.prefix) return token === 0 ? app.t("class-token") : app.t("register", { n: token });
    return app.t("patch-at", { row: Math.floor((token - grid.prefix) / grid.cols), column: (token - grid.prefix) % grid.cols });
  }

  // ---- Elements, once.

  #build() {
    const { app } = this;
    const strip = (name) => mapCanvas(name, { class: "pixels strip" });
    this.rows = ["K", "V"].map((name) => new CellMap(mapCanvas(app.t("rows-of", { name }), { class: "pixels tall-strip" }), (key) => this.#choose(key)));
    const [keys, values] = this.rows.map(({ element }) => element);
    this.parts = {
      q: strip("Q"), k: strip("k"), product: strip("q·k"), scores: h("div", { class: "weights-table" }), result: strip("head"), own: strip("head"),
      ask: h("p", {}), dot: h("p", { class: "formula" }), soft: h("p", { class: "formula" }), sum: h("p", { class: "formula" }), check: h("p", { class: "check" }), out: h("p", {}),
    };
    const { q, k, product, scores, result, own, ask, dot, soft, sum, check, out } = this.parts;
    const step = (title, ...inside) => h("li", {}, h("h4", {}, title), ...inside);
    const row = (name, canvas) => h("div", { class: "strip-row" }, h("span", { class: "mono" }, name), canvas);
    this.steps.replaceChildren(
      step(app.t("step-query"), ask, row("q", q)),
      step(app.t("step-scores"), h("p", {}, app.t("step-scores-says")), row("K", keys), row("k", k), row("q × k", product), dot),
      step(app.t("step-softmax"), h("p", {}, app.t("step-softmax-says")), scores, soft),
      step(app.t("step-sum"), h("p", {}, app.t("step-sum-says")), row("V", values), sum, row("Σ w v", result), row(app.t("model-own"), own), check),
      step(app.t("step-out"), out));
  }

  #drawQueries() {
    const { app } = this;
    const names = app.input.tokens?.length ? app.input.tokens : null;
    if (names && names.length === this.queryCount) {
      this.queries.replaceChildren(h("p", { class: "kicker" }, app.t("query")), chips(names, { label: app.t("query"), chosen: this.query, onchoose: (token) => app.set({ token }, { replace: true }) }));
    } else {
      this.queries.replaceChildren(choice(app.t("query"), Array.from({ length: Math.min(this.queryCount ?? 1, 2000) }, (_, token) => [token, this.nameOf(token)]), this.query, (token) => app.set({ token: Number(token) }, { replace: true })));
    }
  }

  // Whether the vectors come from a norm before this attention, and not from one that ends the layer before.
  #readsNorm() {
    const [layer] = this.path.match(/^.*\.\d+\./) ?? [""];
    return (this.stage.reads ?? []).some((path) => /norm/.test(path) && path.startsWith(layer));
  }

  get query() { return Math.min(this.app.token, (this.queryCount ?? Infinity) - 1); }

  // ---- Values.

  async draw() {
    const { app } = this;
    const turn = ++this.turn;
    const head = Math.min(app.head, this.group.heads - 1);
    const query = this.query;
    const of = (part, rows) => ({ path: `${this.path}.${part}`, head, ...(rows && { rows }) });
    const one = [query, query + 1];
    const got = await app.look({ values: [of("key"), of("value"), of("query", one), of("scores", one), of("weights", one), of("heads", one)] }, { slot: "lecture" });
    if (!got || turn !== this.turn) return;
    const [k, v, q, scores, weights, own] = got.values.map((array) => array?.data);
    this.width = q.length;
    this.tokens = k.length / q.length;
    this.queryCount ??= app.tokenCount || this.tokens;
    this.data = { k, v, q, scores, weights, own };
    this.head.select.value = String(head);
    this.#drawQueries();
    if (this.key === null || this.key >= this.tokens) this.key = weights.indexOf(Math.max(...weights));
    this.#drawAll();
  }

  #drawAll() {
    const { app, parts, width, tokens, query } = this;
    const { k, v, q, own } = this.data;
    const name = quoted(this.nameOf(query));
    parts.ask.textContent = app.t("step-query-says", { token: name, n: width, vector: app.t(this.#readsNorm() ? "vector-normed" : "vector-plain"), turned: /rotary/.test(this.stage.op) ? app.t("turned-by-position") : "" });
    strip(parts.q, q, 1, width);
    [k, v].forEach((values, at) => {
      const { canvas } = this.rows[at];
      strip(canvas, values, tokens, values.length / tokens);
      canvas.style.setProperty("--rows", Math.min(tokens, 64));
      this.rows[at].size(tokens, 1);
    });
    const result = this.#sum();
    const reach = Math.max(...scaleOf(own).map(Math.abs));
    strip(parts.result, result, 1, result.length, reach);
    strip(parts.own, own, 1, own.length, reach);
    let apart = 0;
    own.forEach((value, at) => { apart = Math.max(apart, Math.abs(value - result[at])); });
    parts.check.textContent = app.t("step-check", { apart: apart === 0 ? "0" : apart.toExponential(1), largest: short(reach) });
    parts.check.dataset.apart = String(apart);
    parts.out.textContent = app.t("step-out-says", { heads: this.group.heads });
    this.#drawWeights();
    this.#choose(this.key);
  }

  // The weighted sum of the values, in double precision.
  #sum() {
    const { v, weights } = this.data;
    const columns = v.length / this.tokens;
    const sum = new Float64Array(columns);
    for (let token = 0; token < this.tokens; token++) for (let at = 0; at < columns; at++) sum[at] += weights[token] * v[token * columns + at];
    return Float32Array.from(sum);
  }

  // Scores, their exponentials and shares, the largest first.
  #drawWeights() {
    const { app, parts } = this;
    const { scores, weights } = this.data;
    const order = Array.from({ length: this.tokens }, (_, at) => at).filter((at) => scores[at] > MASKED).sort((a, b) => weights[b] - weights[a]);
    const shown = order.length <= MOST_BARS ? order.sort((a, b) => a - b) : order.slice(0, MOST_BARS);
    this.most = Math.max(...[...scores].filter((score) => score > MASKED));
    this.total = [...scores].reduce((sum, score) => sum + (score > MASKED ? Math.exp(score - this.most) : 0), 0);
    parts.scores.replaceChildren(h("table", { class: "weights" },
      h("thead", {}, h("tr", {}, [app.t("key"), app.t("score"), "exp", app.t("weight"), ""].map((text, at) => h("th", { scope: "col", class: at ? "number" : null }, text)))),
      h("tbody", {}, shown.map((at) => h("tr", { dataset: { at }, onpointerenter: () => this.#choose(at) },
        h("th", { scope: "row" }, this.nameOf(at)), h("td", { class: "number" }, minus(scores[at].toFixed(3))), h("td", { class: "number" }, Math.exp(scores[at] - this.most).toFixed(4)), h("td", { class: "number" }, percent(weights[at])),
        h("td", {}, h("span", { class: "bar", style: { "--share": weights[at].toFixed(4) } }, h("i"))))))),
    order.length > shown.length ? h("p", { class: "hint" }, app.t("n-more", { n: order.length - shown.length })) : "");
  }

  // One key: its products with the query, its score, its share.
  #choose(key) {
    const { app, parts, width } = this;
    const { k, q, scores, weights } = this.data ?? {};
    if (!k) return;
    this.key = key;
    for (const rows of this.rows) rows.keep(key, 0);
    const own = k.subarray(key * width, (key + 1) * width);
    const product = Float32Array.from(own, (value, at) => value * q[at]);
    const dot = product.reduce((sum, value) => sum + value, 0);
    strip(parts.k, own, 1, width);
    strip(parts.product, product, 1, width);
    const scaled = dot / Math.sqrt(width);
    const name = quoted(this.nameOf(key));
    const terms = [...product.subarray(0, 3)].map((value) => short(value)).join(" + ");
    const isMasked = !(scores[key] > MASKED);
    const isSame = Math.abs(scaled - scores[key]) <= 1e-3 * Math.max(1, Math.abs(scaled));
    parts.dot.textContent = isMasked ? app.t("masked-key", { token: name }) : app.t(isSame ? "dot-says" : "dot-says-biased", { token: name, terms, dot: minus(dot.toFixed(4)), width, scaled: minus(scaled.toFixed(4)), score: minus(scores[key].toFixed(4)) });
    parts.soft.textContent = isMasked ? "" : app.t("soft-says", { token: name, score: minus(scores[key].toFixed(3)), most: minus(this.most.toFixed(3)), total: this.total.toFixed(4), weight: percent(weights[key]) });
    parts.sum.textContent = app.t("sum-says", { token: name, weight: percent(weights[key]) });
    for (const row of parts.scores.querySelectorAll("tr[data-at]")) row.classList.toggle("lit", Number(row.dataset.at) === key);
  }
}

function strip(canvas, values, rows, columns, reach = Math.max(...scaleOf(values).map(Math.abs))) {
  heat(canvas, { values, rows, columns, low: -reach, high: reach, diverging: true });
}
