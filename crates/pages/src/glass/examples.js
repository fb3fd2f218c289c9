// Inputs to begin with: ten pictures of Fashion-MNIST's test part, pictures drawn here, texts for each kind of model.

// In the order of clothes.png, which holds them side by side.
const CLOTHES = ["Ankle boot", "T-shirt/top", "Trouser", "Pullover", "Dress", "Sandal", "Sneaker", "Bag", "Coat", "Shirt"];
const CLOTHES_SIDE = 28;
const DRAWN_SIDE = 384;

const TEXTS = {
  next_token: ["The capital of France is", "Once upon a time, there was a little girl named Lily. Lily", "When Mary and John went to the store, John gave a drink to", "def add(a, b):\n    return"],
  masked: ["The engine was [MASK] by Ada, who lived in London.", "Paris is the [MASK] of France.", "The doctor said that [MASK] would be late."],
  token_classes: ["Ada Lovelace met Charles Babbage in London in 1833."],
  classes: ["A quiet film that stays with you for days.", "It was long, loud and not very good."],
  vector: ["The glass house stands at the edge of the wood.", "A house made of glass, near a forest."],
  answers: ["Where did Ada live?"],
  sequence: ["one two three four five", "The house is made of glass."],
};
// What stands beside a text until something else is said.
const BESIDE = { answers: "Ada Lovelace lived in London, where she wrote notes on an engine." };

// Pictures without a file: they show edges, colours, depth and repetition.
const DRAWN = {
  house: (at) => {
    sky(at, "#9cc7e6", "#e9f2f4");
    ground(at, "#7fa267");
    at.fillStyle = "#f4f0e6";
    at.fillRect(110, 170, 170, 140);
    at.fillStyle = "#9a3f2f";
    at.beginPath();
    at.moveTo(90, 172), at.lineTo(195, 90), at.lineTo(300, 172);
    at.fill();
    at.fillStyle = "#4d6f8f";
    for (const x of [130, 220]) at.fillRect(x, 200, 40, 40);
    at.fillStyle = "#6b4a2f";
    at.fillRect(178, 250, 36, 60);
    disc(at, 330, 60, 28, "#f6d04f");
  },
  tree: (at) => {
    sky(at, "#b9d7ea", "#f5efe0");
    ground(at, "#8aa05c");
    at.fillStyle = "#5d432c";
    at.fillRect(180, 200, 26, 120);
    for (const [x, y, r] of [[192, 130, 70], [140, 170, 48], [245, 170, 48], [190, 180, 55]]) disc(at, x, y, r, "#3f7a44");
    disc(at, 60, 70, 26, "#f3c64b");
  },
  balls: (at) => {
    at.fillStyle = "#e8e3d8";
    at.fillRect(0, 0, DRAWN_SIDE, DRAWN_SIDE);
    [[100, 230, 74, "#c43b32"], [220, 190, 58, "#2f6fb0"], [295, 270, 48, "#e1a52f"]].forEach(([x, y, r, colour]) => {
      disc(at, x + 10, y + r - 4, r * 0.8, "#00000018");
      const shine = at.createRadialGradient(x - r / 3, y - r / 3, r / 12, x, y, r);
      shine.addColorStop(0, "#ffffff"), shine.addColorStop(0.25, colour), shine.addColorStop(1, "#202020");
      disc(at, x, y, r, shine);
    });
  },
  stripes: (at) => {
    for (let x = 0; x < DRAWN_SIDE; x += 32) for (let y = 0; y < DRAWN_SIDE; y += 32) {
      at.fillStyle = (x + y) % 64 ? "#1c2733" : y < DRAWN_SIDE / 2 ? "#f4f0e6" : "#d9772b";
      at.fillRect(x, y, 32, 32);
    }
  },
};

function sky(at, high, low) {
  const fill = at.createLinearGradient(0, 0, 0, DRAWN_SIDE);
  fill.addColorStop(0, high), fill.addColorStop(1, low);
  at.fillStyle = fill;
  at.fillRect(0, 0, DRAWN_SIDE, DRAWN_SIDE);
}

function ground(at, colour) {
  at.fillStyle = colour;
  at.fillRect(0, 300, DRAWN_SIDE, DRAWN_SIDE - 300);
}

function disc(at, x, y, radius, colour) {
  at.fillStyle = colour;
  at.beginPath();
  at.arc(x, y, radius, 0, 2 * Math.PI);
  at.fill();
}

// What a model is given: `image`, `audio`, or a kind of text.
export const modality = (model) => (model.takes === "image_text" ? "image" : model.takes);
export const isFile = (model) => ["image", "audio"].includes(modality(model));

// A text with what stands beside it: of a question its context, of a text that another is written from that other, of some models a
// second text.
export function textOf(model, text, given) {
  const beside = given ?? BESIDE[model.gives] ?? null;
  if (model.gives === "sequence") return beside ? { text, target: beside } : { text };
  if (model.takes === "pair") return { text, pair: beside ?? "" };
  return beside === null || model.gives === "next_token" ? { text } : { text, pair: beside };
}

const knowsClothes = (model) => model.labels?.includes("Ankle boot");

// The examples of a model: `id` stands in the address; pictures have `draw(canvas)`, texts `text`.
export function examplesOf(model) {
  if (model.takes === "audio") return [];
  if (model.takes === "image" || model.takes === "image_text") {
    const clothes = CLOTHES.map((name, at) => ({ id: `clothes-${at}`, name, draw: (canvas) => drawClothes(canvas, at) }));
    const drawn = Object.keys(DRAWN).map((name) => ({ id: name, name, draw: async (canvas) => drawScene(canvas, name) }));
    return knowsClothes(model) ? clothes : [...drawn, ...clothes.slice(0, 3)];
  }
  const texts = model.examples ?? TEXTS[model.gives] ?? TEXTS.vector;
  const masked = (text) => (model.mask ? text.replaceAll("[MASK]", model.mask) : text);
  return texts.map((text, at) => ({ id: `text-${at}`, name: masked(text), text: masked(text) }));
}

// What an example gives: a text, or `{ blob }`, the same object each time.
const made = new Map();
export async function exampleOf(model, id) {
  const example = examplesOf(model).find((one) => one.id === id);
  if (!example) return null;
  if (example.text !== undefined) return textOf(model, example.text, null);
  if (!made.has(id)) made.set(id, blobOf(example).then((blob) => ({ blob })));
  return made.get(id);
}

async function blobOf(example) {
  const canvas = document.createElement("canvas");
  await example.draw(canvas);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

let sheet = null;
async function drawClothes(canvas, at) {
  sheet ??= (async () => {
    const image = Object.assign(new Image(), { src: new URL("clothes.png", import.meta.url).href });
    await image.decode();
    return image;
  })();
  const image = await sheet;
  [canvas.width, canvas.height] = [CLOTHES_SIDE, CLOTHES_SIDE];
  canvas.getContext("2d").drawImage(image, at * CLOTHES_SIDE, 0, CLOTHES_SIDE, CLOTHES_SIDE, 0, 0, CLOTHES_SIDE, CLOTHES_SIDE);
}

function drawScene(canvas, name) {
  [canvas.width, canvas.height] = [DRAWN_SIDE, DRAWN_SIDE];
  DRAWN[name](canvas.getContext("2d"));
}
