// The parts of a lesson: text, formula, figure, claim, question.
import { element } from "../elements.js";
import { figure } from "../play/figure.js";
import { blockNodes, formulaNode, pieceNodes } from "./pieces.js";

const SIGNS = { holds: "✓", conditions: "≈", false: "✗", uncheckable: "–", undecided: "?", unmeasured: "○" };

// Returns the node of a part; `ends` collects what has to be done when the lesson is left.
export function partNode(part, context, say, ends) {
  if (part.kind === "text") return textNode(part);
  if (part.kind === "formula") return formulaPart(part, say);
  if (part.kind === "figure") return figurePart(part, context, say, ends);
  if (part.kind === "claim") return claimPart(part, say);
  return questionPart(part, say);
}

function textNode(part) {
  return element("section", { class: "lesson-text" },
    part.heading ? element("h2", { text: part.heading }) : null, ...blockNodes(part.blocks));
}

function formulaPart(part, say) {
  // A wide formula scrolls by itself, so it can be reached by keyboard.
  return element("div", { class: "lesson-formula" },
    element("div", { class: "lesson-math", tabindex: "0", role: "group", "aria-label": say("formula") }, formulaNode(part)),
    element("p", { class: "soft" }, ...pieceNodes(part.words)));
}

function figurePart(part, context, say, ends) {
  const holder = element("div", { class: "lesson-play" });
  const sides = part.other
    ? element("p", { class: "lesson-sides" }, ...["a", "b"].map((side, at) => element("span", { class: `lesson-side ${side}` },
      element("b", { text: side.toUpperCase() }), ` ${part.labels[at]}`)))
    : null;
  const node = element("section", { class: "lesson-figure card" },
    element("h2", { text: part.heading }),
    element("p", {}, element("strong", { text: `${say("try")}: ` }), ...pieceNodes(part.try)), sides, holder);
  try {
    ends.push(figure(holder, context, {
      base: part.base, other: part.other, knobs: part.knobs, curves: part.curves, caption: part.caption, open: say("open"),
    }));
  } catch (error) {
    holder.append(element("p", { class: "reason", role: "alert", text: say("missing", { reason: error.message }) }),
      element("p", { text: part.caption }));
  }
  return node;
}

function claimPart(part, say) {
  const rows = part.numbers.map((one) => element("tr", {},
    element("th", { scope: "row" }, ...pieceNodes(one.label)),
    element("td", { text: one.mean }), element("td", { text: one.limit }), element("td", { text: one.outcome_words })));
  const heads = ["number", "measured", "limit", "outcome"].map((key) => element("th", { scope: "col", text: say(key) }));
  return element("section", { class: "lesson-claim card" },
    element("p", { class: "lesson-lead" }, ...pieceNodes(part.lead)),
    element("p", { class: `lesson-verdict ${part.verdict}` },
      element("span", { "aria-hidden": "true", text: SIGNS[part.verdict] || "·" }), ` ${part.verdict_words}`),
    element("h3", {}, ...pieceNodes(part.title)),
    element("p", {}, element("strong", { text: `${say("says")}: ` }), ...pieceNodes(part.says)),
    part.correction.length
      ? element("p", { class: "lesson-right" }, element("strong", { text: `${part.correction_words}: ` }), ...pieceNodes(part.correction))
      : null,
    element("details", {},
      element("summary", { text: say("numbers") }),
      element("p", {}, ...pieceNodes(part.why)),
      rows.length
        ? element("div", { class: "lesson-scroll", tabindex: "0", role: "group", "aria-label": say("numbers") },
          element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows)))
        : null),
    element("p", {}, element("a", { href: part.address, text: say("more") })));
}

function questionPart(part, say) {
  return element("section", { class: "lesson-question" },
    element("h2", { text: say("question") }),
    element("p", {}, ...pieceNodes(part.question)),
    element("details", {}, element("summary", { text: say("answer") }), ...blockNodes(part.answer)));
}
