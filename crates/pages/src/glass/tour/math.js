// The arithmetic of the figures that the reader changes by hand.

export const dot = (a, b) => a.reduce((sum, x, at) => sum + x * b[at], 0);
export const length = (a) => Math.sqrt(dot(a, a));

// `temperature` 0 gives all to the largest. What is -Infinity gets 0.
export function softmax(scores, temperature = 1) {
  const most = Math.max(...scores);
  if (!(temperature > 0)) {
    const first = scores.indexOf(most);
    return scores.map((_, at) => (at === first ? 1 : 0));
  }
  const powers = scores.map((score) => Math.exp((score - most) / temperature));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}

// One query against keys and values: dot products, scores (divided by √d; -Infinity where masked), weights, output.
export function attend(query, keys, values, isMasked = () => false) {
  const products = keys.map((key) => dot(query, key));
  const scores = products.map((product, at) => (isMasked(at) ? -Infinity : product / Math.sqrt(query.length)));
  const weights = softmax(scores);
  const output = values[0].map((_, column) => weights.reduce((sum, weight, at) => sum + weight * values[at][column], 0));
  return { products, scores, weights, output };
}

// The Euclidean length of each row of a matrix.
export function rowLengths(data, rows, columns) {
  return Array.from({ length: rows }, (_, row) => length([...data.subarray(row * columns, (row + 1) * columns)]));
}

// A place of a distribution for a number between 0 and 1.
export function draw(probabilities, chance) {
  let rest = chance;
  for (let at = 0; at < probabilities.length; at++) {
    rest -= probabilities[at];
    if (rest < 0) return at;
  }
  return probabilities.lastIndexOf(Math.max(...probabilities));
}
