// Lines between two columns of tokens. Those of one colour and strength are one path, so that long texts stay quick.

const STRENGTHS = 32;
export const WEAKEST_LINE = 0.01;

// `lines`: [from, to, weight, group]; `colourOf` a group, `widthOf` a group and a weight. A row of tokens is 1 unit high and the drawing 100 wide.
export function drawLines(drawing, lines, colourOf, widthOf = null) {
  const paths = new Map();
  for (const [from, to, weight, group] of lines) {
    const strength = Math.max(1, Math.round(STRENGTHS * Math.min(1, weight)));
    const key = `${group} ${strength}`;
    if (!paths.has(key)) paths.set(key, { group, strength, d: "" });
    paths.get(key).d += `M0 ${from + 0.5}L100 ${to + 0.5}`;
  }
  drawing.replaceChildren(...[...paths.values()].map(({ group, strength, d }) => {
    const path = document.createElementNS(drawing.namespaceURI, "path");
    path.setAttribute("d", d);
    path.setAttribute("stroke", colourOf(group));
    path.setAttribute("stroke-opacity", (strength / STRENGTHS).toFixed(3));
    if (widthOf) path.style.strokeWidth = widthOf(group, strength / STRENGTHS).toFixed(1);
    path.setAttribute("vector-effect", "non-scaling-stroke");
    return path;
  }));
}

// The lines of maps of weights `[from, to]`, or of one token alone: `side` is the column that it is in.
export function linesOf(maps, count, side, token) {
  const found = [];
  for (const [group, all] of maps) {
    for (let from = 0; from < count; from++) {
      for (let to = 0; to < count; to++) {
        const isShown = side === null || token === (side === "from" ? from : to);
        if (isShown && all[from * count + to] >= WEAKEST_LINE) found.push([from, to, all[from * count + to], group]);
      }
    }
  }
  return found;
}
