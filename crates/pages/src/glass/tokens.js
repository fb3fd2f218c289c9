// The tokens of a text as chips: one is chosen, and a chosen one can be rewritten.

import { button, h } from "./dom.js";
import { hex, lettersOf } from "./tour/pieces.js";

// What is not seen of a token is written out: spaces, line ends, controls, bytes that are no whole letter.
export function readable(text) {
  if (text === "") return "∅";
  const letters = lettersOf(text);
  const [spaces, mark] = letters.trim() ? [/^ +/, "\u00b7"] : [/ +/g, "␣"];
  return letters.replace(spaces, (some) => mark.repeat(some.length)).replaceAll("\n", "⏎").replaceAll("\t", "⇥").replaceAll("\u00a0", "nbsp")
    .replace(/[\0-\x1f\x7f-\x9f]/g, (control) => hex(control.charCodeAt(0)));
}

export const tokensOf = (input, group) => (group === "decoder" || group === "self" || !input?.source_tokens ? input?.tokens : input.source_tokens) ?? [];

export function chips(tokens, { chosen, onchoose, onwrite, shade, label }) {
  const list = h("div", { class: "tokens", role: "group", "aria-label": label });
  const all = tokens.map((token, at) => {
    const chip = button(readable(token.text), () => onchoose(at), {
      class: "token", "aria-pressed": String(at === chosen), dataset: { at }, title: `${at}: ${token.text} (${token.id})`, tabindex: at === chosen ? 0 : -1,
    });
    if (shade) chip.style.setProperty("--share", shade(at).toFixed(3));
    if (onwrite) chip.addEventListener("dblclick", () => onwrite(at, chip));
    chip.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, Home: -at, End: all.length - 1 - at }[event.key];
      if (step !== undefined && all[at + step]) {
        event.preventDefault();
        all[at + step].focus();
        onchoose(at + step);
      }
      if (onwrite && (event.key === "F2" || (event.key === "Enter" && at === chosen))) {
        event.preventDefault();
        onwrite(at, chip);
      }
    });
    return chip;
  });
  if (all.length && !(chosen >= 0 && chosen < all.length)) all[0].tabIndex = 0;
  list.replaceChildren(...all);
  list.choose = (at) => all.forEach((chip, place) => {
    chip.setAttribute("aria-pressed", String(place === at));
    chip.tabIndex = place === at ? 0 : -1;
  });
  list.shade = (share) => all.forEach((chip, at) => chip.style.setProperty("--share", share(at).toFixed(3)));
  return list;
}

// A field in the chip's place; `done(text)` where it was changed.
export function rewrite(chip, text, label, done) {
  const field = h("input", { class: "rewrite", value: text, "aria-label": label, size: Math.max(3, text.length + 1) });
  // Leaving the field takes it away, and taking it away leaves it.
  let isDone = false;
  const finish = (isKept) => {
    if (isDone) return;
    isDone = true;
    field.replaceWith(chip);
    chip.focus();
    if (isKept && field.value !== text) done(field.value);
  };
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") finish(true);
    if (event.key === "Escape") finish(false);
    event.stopPropagation();
  });
  field.addEventListener("blur", () => finish(true));
  chip.replaceWith(field);
  field.focus();
  field.select();
}
