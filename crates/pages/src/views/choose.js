// Choosing cells of maps, and small maps among many, by pointer and by keys.

export const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

// The row and column under the pointer, of an element that holds so many.
export function cellAt(event, element, rows, columns) {
  const box = element.getBoundingClientRect();
  const inside = (share, count) => Math.min(count - 1, Math.max(0, Math.floor(share * count)));
  return [inside((event.clientY - box.top) / box.height, rows), inside((event.clientX - box.left) / box.width, columns)];
}

// Marks the chosen of many buttons. Tab reaches only the first of them.
export function press(cells, isChosen) {
  let first = null;
  for (const cell of cells) {
    const chosen = isChosen(cell.dataset);
    cell.setAttribute("aria-pressed", String(chosen));
    cell.tabIndex = chosen && !first ? 0 : -1;
    if (chosen) first ??= cell;
  }
  if (!first && cells.length) cells[0].tabIndex = 0;
}

// Arrow keys go from one button to the next of a grid that is so many wide.
export function arrows(cells, inOneRow) {
  cells.forEach((cell, at) => cell.addEventListener("keydown", (event) => {
    const step = ARROWS[event.key];
    if (!step) return;
    event.preventDefault();
    const next = cells[at + step[0] * inOneRow() + step[1]];
    if (!next || next.disabled) return;
    next.focus();
    next.click();
  }));
}
