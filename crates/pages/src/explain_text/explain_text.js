// ---- Words that highlight each other, and the lines between them.

const words = { source: data.source.words, target: data.written.words };
const buttons = { source: [...byId("source-words").children], target: [...byId("target-words").children] };
const other = { source: "target", target: "source" };
const alignment = { layer: data.layer, chosen: { side: "target", word: 0 }, weights: null };

// The weights between a word and all words of the other side.
function between({ side, word }) {
  const columns = words.source.length;
  if (side === "target") return [...alignment.weights.subarray(word * columns, (word + 1) * columns)];
  return words.target.map((_, row) => alignment.weights[row * columns + word]);
}

function lightUp(which) {
  const weights = between(which);
  const largest = Math.max(...weights, 1e-6);
  for (const side of ["source", "target"]) {
    buttons[side].forEach((button, at) => {
      const share = side === which.side ? 0 : weights[at] / largest;
      button.style.setProperty("--weight", share.toFixed(3));
      button.classList.toggle("lit", share > 0.25);
      const chosen = side === alignment.chosen.side && at === alignment.chosen.word;
      button.setAttribute("aria-pressed", String(chosen));
      button.tabIndex = (side === alignment.chosen.side ? chosen : at === 0) ? 0 : -1;
    });
  }
  const name = (side, at) => quoted(words[side][at][0]);
  const order = weights.map((_, at) => at).sort((a, b) => weights[b] - weights[a]).slice(0, 4);
  const list = order.map((at) => `${name(other[which.side], at)} ${percent(weights[at])}`).join(", ");
  const said = which.side === "target"
    ? `When ${name("target", which.word)} is generated, layer ${alignment.layer} attends to ${list}.`
    : `Layer ${alignment.layer} attends to ${name("source", which.word)} when it generates ${list}.`;
  if (byId("word-says").textContent !== said) byId("word-says").textContent = said;
  for (const line of document.querySelectorAll("#links path")) {
    line.classList.toggle("lit", Number(line.dataset[which.side]) === which.word);
  }
}

function drawLines() {
  const { left, right, top, step } = data.lines;
  const middle = (left + right) / 2;
  byId("links").replaceChildren(...data.links[alignment.layer].map(([target, source, weight]) => {
    const line = document.createElementNS(byId("links").namespaceURI, "path");
    const [from, to] = [top + step * source, top + step * target];
    line.setAttribute("d", `M${left} ${from}C${middle} ${from} ${middle} ${to} ${right} ${to}`);
    line.setAttribute("stroke", "var(--accent)");
    line.setAttribute("stroke-width", (1 + 4 * weight).toFixed(1));
    line.setAttribute("stroke-opacity", (0.35 + 0.65 * weight).toFixed(2));
    Object.assign(line.dataset, { target, source });
    return line;
  }));
  const said = data.links[alignment.layer].map(([target, source]) => `${words.target[target][0]} to ${words.source[source][0]}`);
  const drawing = document.querySelector(".lines svg");
  drawing.setAttribute("aria-label", `Word alignment by layer ${alignment.layer}`);
  drawing.querySelector("desc").textContent = `Alignment of the translation to the source: ${said.join(", ")}.`;
}

function showAlignment(change) {
  Object.assign(alignment, change);
  alignment.weights = weightsOf(data.between[alignment.layer]);
  drawLines();
  lightUp(alignment.chosen);
}

for (const side of ["source", "target"]) {
  buttons[side].forEach((button, word) => {
    const choose = () => {
      alignment.chosen = { side, word };
      lightUp(alignment.chosen);
    };
    button.addEventListener("pointerenter", (event) => { if (event.pointerType === "mouse") lightUp({ side, word }); });
    button.addEventListener("pointerleave", () => lightUp(alignment.chosen));
    button.addEventListener("focus", choose);
    button.addEventListener("click", choose);
    button.addEventListener("keydown", (event) => {
      const isBackwards = getComputedStyle(button.parentElement).direction === "rtl";
      const step = { ArrowLeft: isBackwards ? 1 : -1, ArrowRight: isBackwards ? -1 : 1, Home: -word, End: buttons[side].length - 1 - word }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      buttons[side][word + step]?.focus();
    });
  });
}
byId("align-layer").addEventListener("change", (event) => showAlignment({ layer: Number(event.target.value) }));
showAlignment({});

// ---- Maps of every layer and head.

const KINDS = {
  encoder: { rows: "source", columns: "source", row: (name) => `${name} attends`, name: "Encoder" },
  decoder: { rows: "written", columns: "read", row: (name) => `Generating ${name}, it attends`, name: "Decoder" },
  cross: { rows: "written", columns: "source", row: (name) => `Generating ${name}, it attends`, name: "Cross-attention" },
};
const headCells = [...(byId("heads")?.querySelectorAll("button") ?? [])];
const view = { kind: byId("kind").value, layer: 0, head: MEAN, shown: null };

// Weights between tokens; NaN where they are masked.
function pieces(kind, place, head) {
  const of = data[kind][place];
  const [rows, columns] = [data[KINDS[kind].rows].pieces.length, data[KINDS[kind].columns].pieces.length];
  of.unpacked ??= { mean: weightsOf(of.mean), heads: of.heads === null ? null : weightsOf(of.heads) };
  const all = head === MEAN ? of.unpacked.mean : of.unpacked.heads.subarray(head * rows * columns, (head + 1) * rows * columns);
  return { rows, columns, at: (row, column) => (kind === "decoder" && column > row ? NaN : all[row * columns + column]) };
}

// The same between words: summed over the tokens of a key, averaged over those of a query.
function joined(from, rows, columns) {
  const values = new Float32Array(rows.length * columns.length).fill(NaN);
  rows.forEach(([, top, bottom], row) => columns.forEach(([, left, right], column) => {
    let [sum, seen] = [0, false];
    for (let y = top; y < bottom; y++) {
      for (let x = left; x < right; x++) {
        const weight = from.at(y, x);
        if (!Number.isNaN(weight)) [sum, seen] = [sum + weight, true];
      }
    }
    if (seen) values[row * columns.length + column] = sum / (bottom - top);
  }));
  return values;
}

function weights(kind, place, head) {
  const from = pieces(kind, place, head);
  const names = (side) => (byId("whole").checked ? side.words : side.pieces.map((piece, at) => [piece, at, at + 1]));
  const [rows, columns] = [names(data[KINDS[kind].rows]), names(data[KINDS[kind].columns])];
  return { rows: rows.map((row) => row[0]), columns: columns.map((column) => column[0]), values: joined(from, rows, columns) };
}

const headName = (head) => (head === MEAN ? "mean over heads" : `head ${data.heads[head]}`);

board.say = (row, column, value) => {
  const { rows, columns } = view.shown;
  return Number.isNaN(value)
    ? `${quoted(columns[column])} is masked for ${quoted(rows[row])}: it is not generated yet.`
    : `${KINDS[view.kind].row(quoted(rows[row]))} to ${quoted(columns[column])} with ${percent(value)}.`;
};

function showMap(change) {
  Object.assign(view, change);
  const layers = data[view.kind];
  if ("kind" in change || !byId("layer").options.length) {
    byId("layer").replaceChildren(...layers.map((one, place) => new Option(String(one.layer), String(place))));
    // For cross-attention the layer that aligns best, otherwise the last one.
    const wanted = view.kind === "cross" ? layers.findIndex((one) => one.layer === data.layer) : layers.length - 1;
    view.layer = Math.max(0, "layer" in change ? change.layer : wanted);
  }
  byId("layer").value = String(view.layer);
  byId("head").value = String(view.head);
  view.shown = weights(view.kind, view.layer, view.head);
  const where = `${KINDS[view.kind].name}, layer ${layers[view.layer].layer}, ${headName(view.head)}`;
  showBoard(view.shown, where);
  for (const cell of headCells) {
    const head = Number(cell.dataset.head);
    paint(cell.querySelector("canvas"), weights(view.kind, view.layer, head));
    cell.setAttribute("aria-pressed", String(head === view.head));
    cell.tabIndex = head === view.head ? 0 : -1;
  }
  if (headCells.length) byId("heads-of").textContent = `${KINDS[view.kind].name.toLowerCase()}, layer ${layers[view.layer].layer}`;
}

arrows(headCells, () => headCells.filter((one) => one.offsetTop === headCells[0].offsetTop).length);
for (const cell of headCells) cell.addEventListener("click", () => showMap({ head: Number(cell.dataset.head) }));
byId("kind").addEventListener("change", (event) => showMap({ kind: event.target.value }));
byId("layer").addEventListener("change", (event) => showMap({ layer: Number(event.target.value) }));
byId("head").addEventListener("change", (event) => showMap({ head: Number(event.target.value) }));
byId("whole").addEventListener("change", () => showMap({}));
byId("root").addEventListener("change", () => showMap({}));
showMap({});
