// Texts of a lesson as nodes. Text is always set as text; formulas are MathML of the server's own
// making, and are taken over as elements.
import { element } from "../elements.js";

const WIDE = 22;

export function formulaNode(piece) {
  if (!piece.math) return element("code", { class: "lesson-latex", text: piece.latex });
  const parsed = new DOMParser().parseFromString(piece.math, "text/html").body.querySelector("math");
  return parsed ? document.importNode(parsed, true) : element("code", { class: "lesson-latex", text: piece.latex });
}

// A formula that may be wider than a phone scrolls by itself, so it can be reached by keyboard.
function inlineFormula(piece) {
  const node = formulaNode(piece);
  if (node.textContent.length <= WIDE) return node;
  return element("span", { class: "lesson-wide", tabindex: "0", role: "group", "aria-label": piece.latex }, node);
}

export function pieceNodes(pieces) {
  return pieces.map((piece) => {
    if ("latex" in piece) return inlineFormula(piece);
    if ("strong" in piece) return element("strong", { text: piece.strong });
    if ("code" in piece) return element("code", { text: piece.code });
    return piece.text;
  });
}

export function blockNodes(blocks) {
  return blocks.map((block) => {
    if (block.kind === "list") {
      return element("ul", {}, ...block.items.map((item) => element("li", {}, ...pieceNodes(item))));
    }
    return element("p", {}, ...pieceNodes(block.pieces));
  });
}
