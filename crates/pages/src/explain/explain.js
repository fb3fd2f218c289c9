const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("explain-data").textContent);
const [rows, columns] = data.grid;
const patches = rows * columns;
const prefix = data.prefix.length;

// In place of a token: whose attention stands for the whole image's. In place of a head: the mean.
const READER = -1;
const MEAN = -1;

// `query` is a token or READER; `patch` the patch that was chosen last, which others are compared with.
const usual = { layer: data.layers.length - 1, head: MEAN, query: READER, patch: null };
const state = { ...usual };
const map = byId("map");
const root = byId("root");
const shared = byId("shared");
const similar = byId("similar");

// ---- Attention weights, unpacked when they are first needed.

const unpacked = new Map();
function part(layer, name) {
  const key = `${layer} ${name}`;
  if (!unpacked.has(key)) {
    const packed = data.layers[layer][name];
    unpacked.set(key, {
      patches: bytes(packed.patches), largest: floats(packed.largest), prefix: floats(packed.prefix),
    });
  }
  return unpacked.get(key);
}

// A byte is 255 times the root of a weight's share of the row's largest.
function row(packed, place) {
  const weights = new Float32Array(patches);
  const largest = packed.largest[place] / (255 * 255);
  for (let at = 0; at < patches; at++) {
    const byte = packed.patches[place * patches + at];
    weights[at] = byte * byte * largest;
  }
  return { patches: weights, prefix: packed.prefix.subarray(place * prefix, (place + 1) * prefix) };
}

function weights(layer, head, query) {
  const heads = data.layers[layer].heads.length;
  if (query === READER) return row(part(layer, "reader"), head === MEAN ? heads : head);
  if (head === MEAN) return row(part(layer, "mean"), query);
  return row(part(layer, "all"), head * (prefix + patches) + query);
}

const hasQueries = data.kept !== "reader";
const canAsk = (head, query) => query === READER || data.kept === "all" || (data.kept === "mean" && head === MEAN);

// ---- Maps: colour and opacity follow the value.

const draw = (canvas, values, [low, high]) => heat(canvas, { values, rows, columns, low, high, root: root.checked, overlay: true });
const drawGroup = (maps) => heatGroup(maps.map((one) => ({ ...one, rows, columns })), { together: shared.checked, root: root.checked, overlay: true });

const placeName = (patch) => `row ${Math.floor(patch / columns)}, column ${patch % columns}`;

function queryName(query) {
  if (query === READER) return data.reader;
  return query < prefix ? data.prefix[query] : `patch ${placeName(query - prefix)}`;
}

const from = (query) => (query < prefix ? `from the ${queryName(query)}` : `from ${queryName(query)}`);
const headName = (layer, head) => (head === MEAN ? data.mean : `head ${data.layers[layer].heads[head]}`);

let shown = null;
let underPointer = null;

// A patch's weight is kept in one byte, so it is rounded.
function readOut() {
  byId("readout").textContent = underPointer === null
    ? "\u00a0"
    : `Under the pointer: ${placeName(underPointer)}, about ${percent(shown.patches[underPointer])}`;
}

function mark(markers, patch) {
  for (const marker of markers) {
    marker.hidden = patch === null;
    if (patch === null) continue;
    marker.style.left = `${(100 * (patch % columns)) / columns}%`;
    marker.style.top = `${(100 * Math.floor(patch / columns)) / rows}%`;
    marker.style.width = `${100 / columns}%`;
    marker.style.height = `${100 / rows}%`;
  }
}

function drawMap() {
  const { layer, head, query } = state;
  shown = weights(layer, head, query);
  const [low, high] = scaleOf(shown.patches);
  draw(map, shown.patches, [low, high]);
  byId("low").textContent = short(low);
  byId("high").textContent = short(high);
  byId("query-name").textContent = queryName(query);
  // A row sums to 1, and the weights in front of the patches are exact; the rounded ones of patches do not add up to it.
  const onPatches = 1 - shown.prefix.reduce((sum, one) => sum + one, 0);
  const strongest = shown.patches.indexOf(high);
  const where = `Layer ${data.layers[layer].layer}, ${headName(layer, head)}, ${from(query)}`;
  const front = data.prefix.map((name, at) => `${percent(shown.prefix[at])} on the ${name}`);
  const split = prefix ? `${percent(onPatches)} of the weight is on patches, ${front.join(", ")}.` : "all of the weight is on patches.";
  const most = `Most on the patch at ${placeName(strongest)}: ${percent(high)}.`;
  byId("says").textContent = `${where}: ${split} ${most}`;
  map.setAttribute("aria-label", `Attention over the image. ${where}. ${most}${hasQueries ? " Arrow keys choose the query patch." : ""}`);
  readOut();
}

// ---- Similarity of patches, where the model has no head.

const cosines = data.similarity ? bytes(data.similarity) : null;

function drawSimilar() {
  if (!cosines) return;
  const patch = state.patch ?? middle();
  const values = Float32Array.from(cosines.subarray(patch * patches, (patch + 1) * patches), (byte) => byte / 127.5 - 1);
  const scale = scaleOf(values);
  draw(similar, values, scale);
  byId("similar-low").textContent = short(scale[0]);
  byId("similar-high").textContent = short(scale[1]);
  const text = `Cosine similarity to the patch at ${placeName(patch)}`;
  byId("similar-says").textContent = `${text}.`;
  similar.setAttribute("aria-label", `${text}, from ${short(scale[0])} to ${short(scale[1])}`);
}

const middle = () => Math.floor(rows / 2) * columns + Math.floor(columns / 2);

// ---- Rows of small maps.

const cellsOf = (id) => [...byId(id).querySelectorAll("button")];
const headCells = cellsOf("heads");
const layerCells = cellsOf("layers");
const overviewCells = cellsOf("overview");
const queryButtons = cellsOf("queries");

function drawStrips() {
  const { layer, head, query } = state;
  const map = (cell, layer, head) => ({ canvas: cell.querySelector("canvas"), values: weights(layer, head, query).patches });
  for (const cell of headCells) {
    cell.disabled = !canAsk(Number(cell.dataset.head), query);
    cell.style.visibility = cell.disabled ? "hidden" : "visible";
  }
  drawGroup(headCells.filter((cell) => !cell.disabled).map((cell) => map(cell, layer, Number(cell.dataset.head))));
  drawGroup(layerCells.map((cell) => map(cell, Number(cell.dataset.layer), head)));
  press(headCells, (of) => Number(of.head) === head);
  press(layerCells, (of) => Number(of.layer) === layer);
  press(overviewCells, (of) => Number(of.layer) === layer && Number(of.head) === head);
  press(queryButtons, (of) => Number(of.query) === query);
  queryButtons.forEach((button) => { button.tabIndex = 0; });
  byId("heads-of").textContent = `layer ${data.layers[layer].layer}, ${from(query)}`;
  byId("layers-of").textContent = `${headName(layer, head)}, ${from(query)}`;
}

function drawOverview() {
  const scale = drawGroup(overviewCells.map((cell) => ({
    canvas: cell.querySelector("canvas"),
    values: weights(Number(cell.dataset.layer), Number(cell.dataset.head), READER).patches,
  })));
  byId("overview-scale").textContent = scale
    ? `All maps share one scale, from ${short(scale[0])} to ${short(scale[1])}.`
    : "Each map has its own scale, from its smallest weight to its largest.";
}

// Rollout and relevance are pictures in the page; here they are drawn again on the chosen scale.
function drawPictures() {
  for (const group of document.querySelectorAll(".maps")) {
    const pictures = [...group.querySelectorAll("img[data-map]")];
    const maps = pictures.map((picture) => {
      const canvas = Object.assign(document.createElement("canvas"), { width: columns, height: rows });
      return { canvas, values: floats(picture.dataset.map), percent: Number(picture.dataset.percentile) };
    });
    const common = drawGroup(maps);
    pictures.forEach((picture, at) => {
      picture.src = maps[at].canvas.toDataURL();
      const ends = picture.closest("figure").querySelectorAll(".legend > span:not(.scale)");
      (common ?? scaleOf(maps[at].values, maps[at].percent)).forEach((end, side) => { ends[side].textContent = short(end); });
    });
  }
}

// ---- The address keeps layer, head and patch: #layer=11&head=2&patch=4,7

function address() {
  const { layer, head, query, patch } = state;
  const parts = [`layer=${data.layers[layer].layer}`, `head=${head === MEAN ? "mean" : data.layers[layer].heads[head]}`];
  if (query >= 0 && query < prefix) parts.push(`token=${query}`);
  if (query >= prefix || (!hasQueries && patch !== null)) parts.push(`patch=${Math.floor(patch / columns)},${patch % columns}`);
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
  view.head = data.layers[view.layer].heads.findIndex((head) => String(head) === fields.get("head"));
  const [down, across] = (fields.get("patch") ?? "").split(",").map(Number);
  if (Number.isInteger(down) && Number.isInteger(across) && down >= 0 && across >= 0 && down < rows && across < columns) {
    view.patch = down * columns + across;
    if (hasQueries) view.query = prefix + view.patch;
  } else if (fields.has("token")) {
    const token = Number(fields.get("token"));
    if (Number.isInteger(token) && token >= 0 && token < prefix && hasQueries) view.query = token;
  }
  return view;
}

// `entry`: "push" adds an entry to the history, "replace" changes the last one.
function show(change, entry) {
  Object.assign(state, change);
  if (state.query >= prefix) state.patch = state.query - prefix;
  // The page may not hold every head of every query: the last choice decides.
  if (!canAsk(state.head, state.query)) {
    if ("query" in change) state.head = MEAN;
    else state.query = READER;
  }
  byId("layer").value = String(state.layer);
  byId("head").value = String(state.head);
  drawMap();
  drawStrips();
  drawSimilar();
  mark(document.querySelectorAll(".explorer .marker"), state.query >= prefix || !hasQueries ? state.patch : null);
  mark(document.querySelectorAll(".two-maps .marker"), state.patch ?? middle());
  if (entry && address() !== location.hash) history[`${entry}State`](null, "", address());
}

addEventListener("popstate", () => {
  const view = addressed();
  if (view) show(view);
});

// ---- Pointer and keys.

const stages = [...document.querySelectorAll(".stage")];

function patchAt(event) {
  const [down, across] = cellAt(event, event.currentTarget, rows, columns);
  return down * columns + across;
}

function pick(patch, entry) {
  if (hasQueries ? state.query !== prefix + patch : state.patch !== patch) {
    show(hasQueries ? { query: prefix + patch } : { patch }, entry);
  }
}

for (const stage of stages) {
  // A finger may be about to scroll; a mouse begins to drag.
  stage.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "mouse" && event.button === 0) pick(patchAt(event), "push");
  });
  stage.addEventListener("click", (event) => pick(patchAt(event), "push"));
  stage.addEventListener("pointermove", (event) => {
    underPointer = patchAt(event);
    readOut();
    if (event.pointerType === "mouse" && event.buttons === 1) pick(underPointer, "replace");
  });
  stage.addEventListener("pointerleave", () => {
    underPointer = null;
    readOut();
  });
}

map.addEventListener("keydown", (event) => {
  if (event.key === "Escape") show({ query: READER }, "push");
  const step = ARROWS[event.key];
  if (!step) return;
  event.preventDefault();
  const patch = state.query - prefix;
  if (patch < 0) {
    pick(middle(), "push");
    return;
  }
  const down = Math.min(rows - 1, Math.max(0, Math.floor(patch / columns) + step[0]));
  const across = Math.min(columns - 1, Math.max(0, (patch % columns) + step[1]));
  pick(down * columns + across, "replace");
});

const inOneRow = (cells) => () => cells.filter((cell) => cell.offsetTop === cells[0].offsetTop).length;
arrows(headCells, inOneRow(headCells));
arrows(layerCells, inOneRow(layerCells));
arrows(overviewCells, () => data.layers[0].heads.length + 1);
const choose = (cells, change) => cells.forEach((cell) => cell.addEventListener("click", () => show(change(cell.dataset), "push")));
choose(headCells, ({ head }) => ({ head: Number(head) }));
choose(layerCells, ({ layer }) => ({ layer: Number(layer) }));
choose(overviewCells, ({ layer, head }) => ({ layer: Number(layer), head: Number(head), query: READER }));
choose(queryButtons, ({ query }) => ({ query: Number(query) }));
byId("layer").addEventListener("change", (event) => show({ layer: Number(event.target.value) }, "push"));
byId("head").addEventListener("change", (event) => show({ head: Number(event.target.value) }, "push"));
byId("opacity").addEventListener("input", (event) => {
  document.documentElement.style.setProperty("--heat", String(event.target.value / 100));
});
byId("smooth").addEventListener("change", (event) => {
  document.body.classList.toggle("smooth", event.target.checked);
});
for (const option of [root, shared]) {
  option.addEventListener("change", () => {
    show({});
    drawOverview();
    drawPictures();
  });
}

if (!hasQueries && !cosines) stages.forEach((stage) => { stage.style.cursor = "default"; });
show(addressed() ?? {});
drawOverview();
