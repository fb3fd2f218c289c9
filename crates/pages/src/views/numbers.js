// Numbers and texts as they are said to readers.

export const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 2 : 1)}\u00a0%`;
// A minus sign in place of the hyphen: numbers stay aligned.
export const minus = (text) => text.replaceAll("-", "\u2212");
export const short = (value) => minus(value === 0 ? "0" : Math.abs(value) < 0.001 ? value.toExponential(1) : value.toPrecision(3));
export const quoted = (text) => `\u201c\u2068${text}\u2069\u201d`;

// Linear interpolation between the two nearest values, as NumPy does.
export function percentile(sorted, percent) {
  const place = (percent / 100) * (sorted.length - 1);
  const below = Math.floor(place);
  const above = Math.min(below + 1, sorted.length - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (place - below);
}

// The smallest value and the largest, or a percentile in its place.
export function scaleOf(values, percent = 100) {
  if (percent === 100) {
    let [low, high] = [Infinity, -Infinity];
    for (const value of values) {
      if (value < low && value > -3e38) low = value;
      if (value > high && value < Infinity) high = value;
    }
    return low <= high ? [low, high] : [0, 0];
  }
  const sorted = Float32Array.from(values).filter(Number.isFinite).sort();
  return sorted.length ? [sorted[0], percentile(sorted, percent)] : [0, 0];
}

