const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("explain-data").textContent);

// ---- A map of weights between tokens or words, large, with names on its axes.

// In place of a head: the mean over all.
const MEAN = -1;
const map = byId("map");
// `say` gives the sentence of a cell.
const board = new Board({ map, marker: byId("marker"), down: byId("down"), across: byId("across") }, (cell) => {
  byId("readout").textContent = cell ? board.say(...cell) : "Point at a cell of the map, or use the arrow keys on it, to read its weight.";
});

const paint = (canvas, shown) => paintWeights(canvas, shown, byId("root").checked);

// The largest weight, for readers who cannot see the map.
function mostOf(shown) {
  const [row, column, value] = strongest(shown);
  return `most on ${quoted(shown.columns[column])} from ${quoted(shown.rows[row])}: ${percent(value)}`;
}

// Draws the map; `where` says of what it is.
function showBoard(shown, where) {
  board.cursor = null;
  byId("high").textContent = percent(board.show(shown, byId("root").checked));
  const most = mostOf(shown);
  byId("says").textContent = `${where}: ${most}.`;
  map.setAttribute("aria-label", `${where}: ${shown.rows.length} rows by ${shown.columns.length} columns, ${most}. Arrow keys read single cells.`);
}
