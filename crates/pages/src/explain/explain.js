const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("explain-data").textContent);
const [rows, columns] = data.grid;
const patches = rows * columns;
const prefix = data.prefix.length;

// Stand for "whose attention stands for the whole image's" in place of a token, and for "mean" in place of a head.
const READER = -1;
const MEAN = -1;

const state = { layer: data.layers.length - 1, head: MEAN, query: READER };
const map = byId("map");
const marker = byId("marker");
const root = byId("root");

function bytes(text) {
  const raw = atob(text);
  const out = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at++) out[at] = raw.charCodeAt(at);
  return out;
}

const floats = (text) => new Float32Array(bytes(text).buffer);
const colours = bytes(data.colours);

// Text becomes numbers when it is first asked for.
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

// A row of weights. A byte is the root of a weight's share of the row's largest, of 255.
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

function range(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

function draw(canvas, values) {
  const [low, high] = range(values);
  const context = canvas.getContext("2d");
  const picture = context.createImageData(columns, rows);
  for (let at = 0; at < patches; at++) {
    let share = high > low ? (values[at] - low) / (high - low) : 0;
    if (root.checked) share = Math.sqrt(share);
    const colour = 3 * Math.round(255 * share);
    picture.data.set([colours[colour], colours[colour + 1], colours[colour + 2], 255], 4 * at);
  }
  context.putImageData(picture, 0, 0);
  return [low, high];
}

const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 2 : 1)}\u00a0%`;
const short = (value) => (value === 0 ? "0" : value < 0.001 ? value.toExponential(1) : value.toPrecision(3));
const placeName = (patch) => `row ${Math.floor(patch / columns)}, column ${patch % columns}`;

function from(query) {
  return query < prefix ? `from the ${queryName(query)}` : `from ${queryName(query)}`;
}

function queryName(query) {
  if (query === READER) return data.reader;
  return query < prefix ? data.prefix[query] : `patch ${placeName(query - prefix)}`;
}

function headName(layer, head) {
  return head === MEAN ? data.mean : `head ${data.layers[layer].heads[head]}`;
}

let shown = null;
let underPointer = null;

// Weights of single patches are kept in a byte each.
function readOut() {
  byId("readout").textContent = underPointer === null
    ? "\u00a0"
    : `Under the pointer: ${placeName(underPointer)}, about ${percent(shown.patches[underPointer])}`;
}

function drawMap() {
  const { layer, head, query } = state;
  shown = weights(layer, head, query);
  const [low, high] = draw(map, shown.patches);
  byId("low").textContent = short(low);
  byId("high").textContent = short(high);
  byId("query-name").textContent = queryName(query);
  // A row sums to 1, and what is in front of the patches is kept exactly; the bytes of patches do not add up to it.
  const onPatches = 1 - shown.prefix.reduce((sum, one) => sum + one, 0);
  const strongest = shown.patches.indexOf(high);
  const where = `Layer ${data.layers[layer].layer}, ${headName(layer, head)}, ${from(query)}`;
  const front = data.prefix.map((name, at) => `${percent(shown.prefix[at])} on the ${name}`);
  const split = prefix ? `${percent(onPatches)} of the weight is on patches, ${front.join(", ")}.` : "all of the weight is on patches.";
  const most = `Most on the patch at ${placeName(strongest)}: ${percent(high)}.`;
  byId("says").textContent = `${where}: ${split} ${most}`;
  map.setAttribute("aria-label", `Attention over the image. ${where}. ${most}${hasQueries ? " Arrow keys choose the query patch." : ""}`);
  const patch = query - prefix;
  marker.hidden = patch < 0;
  if (patch >= 0) {
    marker.style.left = `${(100 * (patch % columns)) / columns}%`;
    marker.style.top = `${(100 * Math.floor(patch / columns)) / rows}%`;
  }
  readOut();
}

function press(cells, isChosen) {
  let first = null;
  for (const cell of cells) {
    const chosen = isChosen(cell.dataset);
    cell.setAttribute("aria-pressed", String(chosen));
    cell.tabIndex = chosen ? 0 : -1;
    if (chosen) first = cell;
  }
  if (!first && cells.length) cells[0].tabIndex = 0;
}

const cellsOf = (id) => [...byId(id).querySelectorAll("button")];
const headCells = cellsOf("heads");
const layerCells = cellsOf("layers");
const overviewCells = cellsOf("overview");
const queryButtons = cellsOf("queries");

function drawStrips() {
  const { layer, head, query } = state;
  for (const cell of headCells) {
    const of = Number(cell.dataset.head);
    cell.disabled = !canAsk(of, query);
    cell.style.visibility = cell.disabled ? "hidden" : "visible";
    if (!cell.disabled) draw(cell.querySelector("canvas"), weights(layer, of, query).patches);
  }
  for (const cell of layerCells) {
    draw(cell.querySelector("canvas"), weights(Number(cell.dataset.layer), head, query).patches);
  }
  press(headCells, (of) => Number(of.head) === head);
  press(layerCells, (of) => Number(of.layer) === layer);
  press(overviewCells, (of) => Number(of.layer) === layer && Number(of.head) === head);
  press(queryButtons, (of) => Number(of.query) === query);
  queryButtons.forEach((button) => { button.tabIndex = 0; });
  byId("heads-of").textContent = `layer ${data.layers[layer].layer}, ${from(query)}`;
  byId("layers-of").textContent = `${headName(layer, head)}, ${from(query)}`;
}

function drawOverview() {
  for (const cell of overviewCells) {
    draw(cell.querySelector("canvas"), weights(Number(cell.dataset.layer), Number(cell.dataset.head), READER).patches);
  }
}

// Maps that are pictures, drawn again on the chosen scale.
function drawPictures() {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [columns, rows];
  for (const picture of document.querySelectorAll("img[data-map]")) {
    draw(canvas, floats(picture.dataset.map));
    picture.src = canvas.toDataURL();
  }
}

function show(change) {
  Object.assign(state, change);
  // Of single queries, only what was kept can be shown: what was asked for last decides.
  if (!canAsk(state.head, state.query)) {
    if ("query" in change) state.head = MEAN;
    else state.query = READER;
  }
  byId("layer").value = String(state.layer);
  byId("head").value = String(state.head);
  drawMap();
  drawStrips();
}

function patchAt(event) {
  const box = map.getBoundingClientRect();
  const inside = (share, count) => Math.min(count - 1, Math.max(0, Math.floor(share * count)));
  const down = inside((event.clientY - box.top) / box.height, rows);
  return down * columns + inside((event.clientX - box.left) / box.width, columns);
}

function pick(patch) {
  if (hasQueries && state.query !== prefix + patch) show({ query: prefix + patch });
}

map.addEventListener("click", (event) => pick(patchAt(event)));
map.addEventListener("pointermove", (event) => {
  underPointer = patchAt(event);
  readOut();
  if (event.pointerType === "mouse" && event.buttons === 1) pick(underPointer);
});
map.addEventListener("pointerleave", () => {
  underPointer = null;
  readOut();
});

const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

map.addEventListener("keydown", (event) => {
  if (event.key === "Escape") show({ query: READER });
  const step = ARROWS[event.key];
  if (!step) return;
  event.preventDefault();
  const patch = state.query - prefix;
  if (patch < 0) {
    pick(Math.floor(rows / 2) * columns + Math.floor(columns / 2));
    return;
  }
  const down = Math.min(rows - 1, Math.max(0, Math.floor(patch / columns) + step[0]));
  const across = Math.min(columns - 1, Math.max(0, (patch % columns) + step[1]));
  pick(down * columns + across);
});

// In rows of cells only the chosen one is on the way of the Tab key; arrows go from one to the next.
function arrows(cells, width) {
  cells.forEach((cell, at) => {
    cell.addEventListener("keydown", (event) => {
      const step = ARROWS[event.key];
      if (!step) return;
      event.preventDefault();
      const next = cells[at + step[0] * width() + step[1]];
      if (next && !next.disabled) {
        next.focus();
        next.click();
      }
    });
  });
}

const inOneRow = (cells) => () => cells.filter((cell) => cell.offsetTop === cells[0].offsetTop).length;
arrows(headCells, inOneRow(headCells));
arrows(layerCells, inOneRow(layerCells));
arrows(overviewCells, () => data.layers[0].heads.length + 1);
headCells.forEach((cell) => cell.addEventListener("click", () => show({ head: Number(cell.dataset.head) })));
layerCells.forEach((cell) => cell.addEventListener("click", () => show({ layer: Number(cell.dataset.layer) })));
overviewCells.forEach((cell) => {
  cell.addEventListener("click", () => {
    show({ layer: Number(cell.dataset.layer), head: Number(cell.dataset.head), query: READER });
  });
});
queryButtons.forEach((button) => {
  button.addEventListener("click", () => show({ query: Number(button.dataset.query) }));
});
byId("layer").addEventListener("change", (event) => show({ layer: Number(event.target.value) }));
byId("head").addEventListener("change", (event) => show({ head: Number(event.target.value) }));
byId("opacity").addEventListener("input", (event) => {
  document.documentElement.style.setProperty("--heat", String(event.target.value / 100));
});
byId("smooth").addEventListener("change", (event) => {
  document.body.classList.toggle("smooth", event.target.checked);
});
root.addEventListener("change", () => {
  show({});
  drawOverview();
  drawPictures();
});

if (!hasQueries) map.style.cursor = "default";
show({});
drawOverview();
