// The colour scales, with the numbers of colour.rs: a test compares them.

const SEQUENTIAL_STOPS = [
  [68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37],
];
const DIVERGING_STOPS = [[5, 72, 143], [106, 168, 212], [247, 246, 243], [232, 150, 76], [148, 66, 4]];
export const CATEGORIES = ["#0072b2", "#d55e00", "#009e73", "#b5478f", "#8a6d00", "#3d9ad1", "#6b6b6b"];

// 256 steps of red, green and blue.
function table(stops) {
  const out = new Uint8Array(3 * 256);
  for (let step = 0; step < 256; step++) {
    const place = (step / 255) * (stops.length - 1);
    const below = Math.min(Math.floor(place), stops.length - 2);
    for (let channel = 0; channel < 3; channel++) {
      const [low, high] = [stops[below][channel], stops[below + 1][channel]];
      out[3 * step + channel] = Math.round(low + (place - below) * (high - low));
    }
  }
  return out;
}

// The text colour to be read on a colour: the one of greater contrast, as in colour.rs.
export function textOn(rgb) {
  const [red, green, blue] = [...rgb].map((byte) => (byte / 255 <= 0.04045 ? byte / 255 / 12.92 : ((byte / 255 + 0.055) / 1.055) ** 2.4));
  const light = 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
  return light / 0.05 > 1.05 / light ? "#000" : "#fff";
}

export const SEQUENTIAL = table(SEQUENTIAL_STOPS);
export const DIVERGING = table(DIVERGING_STOPS);
