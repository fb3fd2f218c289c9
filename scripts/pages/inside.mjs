// Checks that run inside the page. Each is self-contained: the browser gets its source text alone.

// Runs before the page: adds up the layout shifts that no input caused.
export function watchLayout() {
  window.layoutShiftSum = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.layoutShiftSum += entry.value;
  }).observe({ type: "layout-shift", buffered: true });
}

export function layoutShift() {
  return window.layoutShiftSum;
}

// The document must not scroll sideways. The widest elements are named.
export function overflow() {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const inScroller = (element) => {
    for (let parent = element.parentElement; parent; parent = parent.parentElement) {
      if (/auto|scroll|hidden/.test(getComputedStyle(parent).overflowX)) return true;
    }
    return false;
  };
  const wide = [...document.body.querySelectorAll("*")]
    .filter((element) => element.getBoundingClientRect().right > width + 0.5 && !inScroller(element))
    .slice(0, 3)
    .map((element) => `<${element.tagName.toLowerCase()} class="${element.getAttribute("class") ?? ""}">`);
  return [`the document is ${document.documentElement.scrollWidth} pixels wide on ${width}: ${wide.join(", ")}`];
}

// Everything visible needs a text alternative.
export function textAlternatives() {
  const wrong = [];
  const named = (element) =>
    element.getAttribute("aria-label")?.trim() || element.getAttribute("aria-labelledby") ||
    element.getAttribute("title")?.trim();
  const hidden = (element) => element.closest("[aria-hidden=true]");
  for (const image of document.querySelectorAll("img")) {
    if (!hidden(image) && !image.hasAttribute("alt")) wrong.push(`img without alt (class "${image.className}")`);
  }
  for (const drawing of document.querySelectorAll("svg")) {
    if (drawing.parentElement.closest("svg") || hidden(drawing)) continue;
    if (!named(drawing) && !drawing.querySelector(":scope > title")) wrong.push("svg without a name");
  }
  for (const canvas of document.querySelectorAll("canvas")) {
    if (!hidden(canvas) && !named(canvas) && !canvas.textContent.trim()) wrong.push(`canvas #${canvas.id} without a name`);
  }
  for (const control of document.querySelectorAll("select, input:not([type=hidden]), textarea")) {
    if (!named(control) && !control.labels?.length) wrong.push(`<${control.tagName.toLowerCase()} id="${control.id}"> without a label`);
  }
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  const twice = ids.find((id, index) => ids.indexOf(id) !== index);
  if (twice) wrong.push(`the id ${twice} is there twice`);
  return wrong;
}

// Text against what lies under it: at least 4.5 to 1, or 3 to 1 where it is large (WCAG 2.2, 1.4.3).
// Under text of a drawing lie the shapes drawn before it; where that is a picture or half transparent it is not judged.
export function contrast() {
  const parse = (text) => {
    const numbers = text.match(/[\d.]+/g)?.map(Number) ?? [];
    return text.startsWith("rgb") ? { rgb: numbers.slice(0, 3), alpha: numbers[3] ?? 1 } : null;
  };
  const luminance = (rgb) => {
    const [red, green, blue] = rgb.map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ratio = (a, b) => {
    const [light, dark] = [luminance(a), luminance(b)].sort((x, y) => y - x);
    return (light + 0.05) / (dark + 0.05);
  };
  const groundOfElement = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const style = getComputedStyle(at);
      if (style.backgroundImage !== "none" || Number(style.opacity) < 1) return null;
      const colour = parse(style.backgroundColor);
      if (colour?.alpha === 1) return colour.rgb;
      if (colour && colour.alpha > 0) return null;
    }
    return [255, 255, 255];
  };
  // The last filled shape drawn before the text that holds the text's middle.
  const groundInDrawing = (text) => {
    const drawing = text.ownerSVGElement;
    const box = text.getBoundingClientRect();
    const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
    let ground = groundOfElement(drawing);
    for (const shape of drawing.querySelectorAll("rect, circle, path, image")) {
      if (shape.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_PRECEDING) break;
      const area = shape.getBoundingClientRect();
      if (x < area.left || x > area.right || y < area.top || y > area.bottom) continue;
      if (shape.tagName === "image") { ground = null; continue; }
      const style = getComputedStyle(shape);
      const fill = style.fill === "none" ? null : parse(style.fill);
      // Lines and curves do not fill the box around them.
      if (!fill || (shape.tagName === "path" && !/z\s*$/i.test(shape.getAttribute("d")))) continue;
      ground = fill.alpha === 1 && Number(style.fillOpacity) === 1 ? fill.rgb : null;
    }
    return ground;
  };
  const wrong = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const words = walker.currentNode.textContent.trim();
    const element = walker.currentNode.parentElement;
    if (!words || element.closest("script, style, title, desc, canvas, option")) continue;
    const box = element.getBoundingClientRect();
    const style = getComputedStyle(element);
    if (!box.width || !box.height || style.visibility === "hidden") continue;
    const drawn = element.closest("text");
    const ink = parse(drawn ? style.fill : style.color);
    const ground = drawn ? groundInDrawing(drawn) : groundOfElement(element);
    if (!ink || ink.alpha < 1 || !ground) continue;
    const size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    const found = ratio(ink.rgb, ground);
    const pair = `rgb(${ink.rgb}) on rgb(${ground})`;
    if (found < least && !wrong.has(pair)) {
      wrong.set(pair, `hard to read, ${found.toFixed(2)} to 1: "${words.slice(0, 40)}", ${pair}`);
    }
  }
  return [...wrong.values()].slice(0, 10);
}
