const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("explain-data").textContent);

function bytes(text) {
  const raw = atob(text);
  const out = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at++) out[at] = raw.charCodeAt(at);
  return out;
}

const colours = bytes(data.colours);
const weightsOf = (text) => Float32Array.from(new Uint16Array(bytes(text).buffer), (share) => share / 65535);
const percent = (share) => `${(100 * share).toFixed(1)}\u00a0%`;
const quoted = (text) => `\u201c\u2068${text}\u2069\u201d`;

// ---- A map of weights between tokens or words, large, with names on its axes.

// In place of a head: the mean over all.
const MEAN = -1;
const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
const map = byId("map");
const marker = byId("marker");
// What is shown: names of rows and columns, and values, NaN where they are masked. `say` gives the sentence of a cell.
const board = { shown: null, cursor: null, say: null };

function paint(canvas, { rows, columns, values }) {
  [canvas.width, canvas.height] = [columns.length, rows.length];
  let high = 0;
  for (const value of values) if (value > high) high = value;
  const context = canvas.getContext("2d");
  const picture = context.createImageData(columns.length, rows.length);
  values.forEach((value, at) => {
    if (Number.isNaN(value)) return;
    let share = high > 0 ? value / high : 0;
    if (byId("root").checked) share = Math.sqrt(share);
    const colour = 3 * Math.round(255 * share);
    picture.data.set([colours[colour], colours[colour + 1], colours[colour + 2], 255], 4 * at);
  });
  context.putImageData(picture, 0, 0);
  return high;
}

function label(element, names) {
  element.replaceChildren(...names.map((name) => {
    const span = document.createElement("span");
    span.textContent = name;
    span.title = name;
    return span;
  }));
}

function readOut(cell) {
  const { columns, values } = board.shown;
  [byId("down"), byId("across")].forEach((names, axis) => {
    [...names.children].forEach((name, at) => name.classList.toggle("lit", Boolean(cell) && cell[axis] === at));
  });
  marker.hidden = !cell;
  if (!cell) {
    byId("readout").textContent = "Point at a cell of the map, or use the arrow keys on it, to read its weight.";
    return;
  }
  const [row, column] = cell;
  [marker.style.top, marker.style.left] = [`calc(${row} * var(--cell))`, `calc(${column} * var(--cell))`];
  byId("readout").textContent = board.say(row, column, values[row * columns.length + column]);
}

// The largest weight, for readers who cannot see the map.
function strongest({ rows, columns, values }) {
  let best = 0;
  values.forEach((value, at) => { if (value > values[best] || Number.isNaN(values[best])) best = at; });
  return `most on ${quoted(columns[best % columns.length])} from ${quoted(rows[Math.floor(best / columns.length)])}: ${percent(values[best])}`;
}

// Draws the map; `where` says of what it is.
function showBoard(shown, where) {
  board.shown = shown;
  const { rows, columns } = shown;
  byId("high").textContent = percent(paint(map, shown));
  map.style.width = `calc(${columns.length} * var(--cell))`;
  map.style.height = `calc(${rows.length} * var(--cell))`;
  label(byId("down"), rows);
  label(byId("across"), columns);
  byId("says").textContent = `${where}: ${strongest(shown)}.`;
  map.setAttribute("aria-label", `${where}: ${rows.length} rows by ${columns.length} columns, ${strongest(shown)}. Arrow keys read single cells.`);
  board.cursor = null;
  readOut(null);
}

function cellAt(event) {
  const box = map.getBoundingClientRect();
  const { rows, columns } = board.shown;
  const inside = (share, count) => Math.min(count - 1, Math.max(0, Math.floor(share * count)));
  return [inside((event.clientY - box.top) / box.height, rows.length), inside((event.clientX - box.left) / box.width, columns.length)];
}

map.addEventListener("pointermove", (event) => readOut(cellAt(event)));
map.addEventListener("pointerleave", () => readOut(board.cursor));
map.addEventListener("click", (event) => {
  board.cursor = cellAt(event);
  readOut(board.cursor);
});

map.addEventListener("keydown", (event) => {
  if (event.key === "Escape") readOut((board.cursor = null));
  const step = ARROWS[event.key];
  if (!step) return;
  event.preventDefault();
  const last = [board.shown.rows.length - 1, board.shown.columns.length - 1];
  board.cursor = board.cursor ? board.cursor.map((place, axis) => Math.min(last[axis], Math.max(0, place + step[axis]))) : [0, 0];
  readOut(board.cursor);
  marker.scrollIntoView({ block: "nearest", inline: "nearest" });
});

// In rows of small maps, Tab reaches only the chosen one; arrow keys go from one to the next.
function arrows(cells, inOneRow) {
  cells.forEach((cell, at) => cell.addEventListener("keydown", (event) => {
    const step = ARROWS[event.key];
    if (!step) return;
    event.preventDefault();
    const next = cells[at + step[0] * inOneRow() + step[1]];
    next?.focus();
    next?.click();
  }));
}
