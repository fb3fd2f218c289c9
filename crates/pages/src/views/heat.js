// Maps of values as pictures, one pixel per value: the style makes them large.

import { DIVERGING, SEQUENTIAL } from "./colours.js";
import { scaleOf } from "./numbers.js";

// What is below this is masked, and has no colour.
const MASKED = -3e38;

// Draws `rows` x `columns` values between `low` and `high`. `root`: shares are square-rooted, which brings out small ones.
// `overlay`: opacity follows the value, too, for maps that lie on a picture. `diverging`: around 0, blue below, orange above.
export function heat(canvas, { values, rows, columns, low, high, root = false, overlay = false, diverging = false }) {
  if (canvas.width !== columns || canvas.height !== rows) [canvas.width, canvas.height] = [columns, rows];
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const picture = context.createImageData(columns, rows);
  const pixels = picture.data;
  const colours = diverging ? DIVERGING : SEQUENTIAL;
  const reach = diverging ? Math.max(Math.abs(low), Math.abs(high)) : 0;
  const [from, span] = diverging ? [-reach, 2 * reach] : [low, high - low];
  const count = rows * columns;
  for (let at = 0; at < count; at++) {
    const value = values[at];
    if (!(value > MASKED)) continue;
    let share = span > 0 ? Math.min(1, Math.max(0, (value - from) / span)) : diverging ? 0.5 : 0;
    if (root) share = Math.sqrt(share);
    const step = Math.round(255 * share);
    pixels[4 * at] = colours[3 * step];
    pixels[4 * at + 1] = colours[3 * step + 1];
    pixels[4 * at + 2] = colours[3 * step + 2];
    pixels[4 * at + 3] = overlay ? step : 255;
  }
  context.putImageData(picture, 0, 0);
}

// Maps that stand together: each on its own scale, or all on one. Gives the common scale, if there is one.
export function heatGroup(maps, { together = false, ...how } = {}) {
  if (!maps.length) return null;
  const scales = maps.map(({ values, percent }) => scaleOf(values, percent));
  const common = together ? scales.reduce(([low, high], scale) => [Math.min(low, scale[0]), Math.max(high, scale[1])]) : null;
  maps.forEach(({ canvas, values, rows, columns }, at) => {
    const [low, high] = common ?? scales[at];
    heat(canvas, { values, rows, columns, low, high, ...how });
  });
  return common;
}
