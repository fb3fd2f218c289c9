// ---- The choice of layer, heads and token, which the address keeps: #layer=5&heads=0,3&from=2

const tokens = data.tokens;
const count = tokens.length;
// `heads` are places among those of the page, or the mean alone; `side` is the column of `token`.
const usual = { layer: data.layers.length - 1, heads: [MEAN], side: null, token: null };
const state = { ...usual };

function address() {
  const { layer, heads, side, token } = state;
  const named = heads.map((head) => (head === MEAN ? "mean" : data.heads[head]));
  const parts = [`layer=${data.layers[layer].layer}`, `heads=${named.join(",")}`];
  if (side) parts.push(`${side}=${token}`);
  return `#${parts.join("&")}`;
}

// The view that the address names; null where it names none, as in the address of a section.
function addressed() {
  if (location.hash.length < 2) return { ...usual };
  const fields = new URLSearchParams(location.hash.slice(1));
  if (!fields.has("layer")) return null;
  const view = { ...usual };
  const layer = data.layers.findIndex((one) => String(one.layer) === fields.get("layer"));
  if (layer >= 0) view.layer = layer;
  const heads = (fields.get("heads") ?? "").split(",").map((name) => data.heads.findIndex((head) => String(head) === name));
  const known = [...new Set(heads)].filter((head) => head >= 0).sort((a, b) => a - b);
  if (known.length) view.heads = known;
  for (const side of ["from", "to"]) {
    const token = Number(fields.get(side) ?? NaN);
    if (Number.isInteger(token) && token >= 0 && token < count) Object.assign(view, { side, token });
  }
  return view;
}

// ---- Weights between tokens.

function weights(layer, head) {
  const of = data.layers[layer];
  of.unpacked ??= { mean: weightsOf(of.mean), heads: of.heads === null ? null : weightsOf(of.heads) };
  return head === MEAN ? of.unpacked.mean : of.unpacked.heads.subarray(head * count * count, (head + 1) * count * count);
}

// The mean of the chosen heads.
function chosenWeights() {
  const all = state.heads.map((head) => weights(state.layer, head));
  if (all.length === 1) return all[0];
  return Float32Array.from(all[0], (_, at) => all.reduce((sum, one) => sum + one[at], 0) / all.length);
}

function headsName() {
  const { heads } = state;
  if (heads[0] === MEAN) return "mean over heads";
  const names = heads.map((head) => data.heads[head]);
  return names.length === 1 ? `head ${names[0]}` : `heads ${names.join(", ")}`;
}

const colourOf = (head) => (head === MEAN ? "var(--accent)" : `hsl(${Math.round((360 * head) / data.heads.length)} 70% 48%)`);

board.say = (row, column, value) => `${quoted(tokens[row])} attends to ${quoted(tokens[column])} with ${percent(value)}.`;

// ---- Lines.

const columns = { from: [...byId("from").querySelectorAll("button")], to: [...byId("to").querySelectorAll("button")] };

// The weights between a token and all of the other column, and what they say.
function lightUp(side, token) {
  const all = chosenWeights();
  const of = side && tokens.map((_, at) => (side === "from" ? all[token * count + at] : all[at * count + token]));
  for (const name of ["from", "to"]) {
    columns[name].forEach((button, at) => {
      button.style.setProperty("--share", side && name !== side ? of[at].toFixed(3) : "0");
      button.classList.toggle("lit", name === side && at === token);
      const pressed = name === state.side && at === state.token;
      button.setAttribute("aria-pressed", String(pressed));
      button.tabIndex = (name === state.side ? pressed : at === 0) ? 0 : -1;
    });
  }
  if (!side) {
    byId("lines-says").textContent = "All tokens are shown.";
    return;
  }
  const order = of.map((_, at) => at).sort((a, b) => of[b] - of[a]).slice(0, 4);
  const list = order.map((at) => `${quoted(tokens[at])} (${at}) ${percent(of[at])}`).join(", ");
  byId("lines-says").textContent = side === "from"
    ? `${quoted(tokens[token])} (${token}) attends to ${list}.`
    : `${quoted(tokens[token])} (${token}) is attended to by ${list}.`;
}

// The lines of the chosen heads, or of one token alone: [from, to, weight, head].
const shownLines = (side, token) => linesOf(state.heads.map((head) => [head, weights(state.layer, head)]), count, side, token);

function showToken(side, token) {
  drawLines(byId("flow"), shownLines(side, token), colourOf);
  lightUp(side, token);
}

// ---- Everything that follows from the choice.

const cellsOf = (id) => [...byId(id).querySelectorAll("button")];
const overviewCells = cellsOf("overview");
const headButtons = cellsOf("heads");

// `entry`: "push" adds an entry to the history, "replace" changes the last one.
function show(change, entry) {
  Object.assign(state, change);
  const { layer, heads } = state;
  byId("layer").value = String(layer);
  showBoard({ rows: tokens, columns: tokens, values: chosenWeights() }, `Layer ${data.layers[layer].layer}, ${headsName()}`);
  press(overviewCells, (of) => Number(of.layer) === layer && heads.includes(Number(of.head)));
  headButtons.forEach((button) => {
    const head = Number(button.dataset.head);
    button.setAttribute("aria-pressed", String(heads.includes(head)));
    button.style.setProperty("--head", colourOf(head));
  });
  byId("lines-layer").textContent = String(data.layers[layer].layer);
  byId("lines-heads").textContent = headsName();
  showToken(state.side, state.token);
  if (entry && address() !== location.hash) history[`${entry}State`](null, "", address());
}

function drawOverview() {
  for (const cell of overviewCells) {
    const values = weights(Number(cell.dataset.layer), Number(cell.dataset.head));
    paint(cell.querySelector("canvas"), { rows: tokens, columns: tokens, values });
  }
}

// Another head joins those that are chosen, or leaves them; the mean stands alone.
function toggled(head) {
  if (head === MEAN) return [MEAN];
  const rest = state.heads.filter((one) => one !== MEAN && one !== head);
  const heads = state.heads.includes(head) ? rest : [...rest, head].sort((a, b) => a - b);
  return heads.length ? heads : [MEAN];
}

for (const side of ["from", "to"]) {
  columns[side].forEach((button, token) => {
    button.addEventListener("pointerenter", (event) => { if (event.pointerType === "mouse") showToken(side, token); });
    button.addEventListener("pointerleave", () => showToken(state.side, state.token));
    button.addEventListener("click", () => {
      const isChosen = state.side === side && state.token === token;
      show(isChosen ? { side: null, token: null } : { side, token }, "push");
    });
    button.addEventListener("keydown", (event) => {
      if (event.key === "Escape") show({ side: null, token: null }, "push");
      const step = { ArrowUp: -1, ArrowDown: 1, Home: -token, End: count - 1 - token }[event.key];
      const next = { ArrowLeft: "from", ArrowRight: "to" }[event.key];
      const button = next ? columns[next][token] : step !== undefined && columns[side][token + step];
      if (!button) return;
      event.preventDefault();
      show({ side: next ?? side, token: next ? token : token + step }, "replace");
      button.focus();
    });
  });
}
headButtons.forEach((button) => button.addEventListener("click", () => show({ heads: toggled(Number(button.dataset.head)) }, "push")));
arrows(overviewCells, () => data.heads.length + 1);
overviewCells.forEach((cell) => cell.addEventListener("click", () => {
  show({ layer: Number(cell.dataset.layer), heads: [Number(cell.dataset.head)] }, "push");
}));
byId("layer").addEventListener("change", (event) => show({ layer: Number(event.target.value) }, "push"));
byId("root").addEventListener("change", () => {
  show({});
  drawOverview();
});
addEventListener("popstate", () => {
  const view = addressed();
  if (view) show(view);
});
show(addressed() ?? {});
drawOverview();

// ---- What each layer would fill in.

function showFillings(place) {
  const rows = [...data.fillings.layers].reverse().map(({ name, top }) => {
    const row = document.createElement("tr");
    const head = Object.assign(document.createElement("th"), { textContent: name });
    const cells = top[place].map(([token, score]) => {
      const cell = document.createElement("td");
      const text = Object.assign(document.createElement("bdi"), { textContent: token });
      const share = Object.assign(document.createElement("span"), { className: "score", textContent: percent(score) });
      cell.style.setProperty("--share", score.toFixed(3));
      cell.replaceChildren(text, " ", share);
      return cell;
    });
    row.replaceChildren(head, ...cells);
    return row;
  });
  byId("lens-rows").replaceChildren(...rows);
}

if (data.fillings.layers.length) byId("place").addEventListener("change", (event) => showFillings(Number(event.target.value)));
