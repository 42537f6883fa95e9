// Verdicts and findings: the level as a sign and a word, what was measured, why, and what to do.
import { element } from "./elements.js";
import { numberText } from "./numbers.js";

const SIGNS = { serious: "✕", warning: "!", note: "i", healthy: "✓" };

// The level of a verdict; `word` replaces its usual word. Nothing stands for no level.
export function levelMark(level, t, word) {
  if (!(level in SIGNS)) return null;
  return element("span", { class: "level-mark", "data-level": level },
    element("span", { class: "sign", "aria-hidden": "true", text: SIGNS[level] }), element("span", { text: word || t(`level.${level}`) }));
}

function valueText(value) {
  if (typeof value === "number") return numberText(value, 0, 4);
  if (value === null || value === undefined) return "–";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function evidenceTable(evidence, t) {
  const columns = ["what", "value", "expected", "source"];
  return element("div", { class: "evidence", tabindex: "0", role: "region", "aria-label": t("finding.evidence") }, element("table", {},
    element("thead", {}, element("tr", {}, ...columns.map((name) => element("th", { scope: "col", text: t(`finding.${name}`) })))),
    element("tbody", {}, ...evidence.map((one) => element("tr", {}, ...columns.map((name) =>
      element("td", { class: name, "data-name": t(`finding.${name}`), text: name === "what" || name === "source" ? String(one[name] ?? "") : valueText(one[name]) })))))));
}

// A finding as the server tells it; `more` are elements below it, `heading` the tag of its verdict.
export function findingCard(finding, t, { heading = "h3", more = [] } = {}) {
  const terms = [];
  const term = (key, content) => terms.push(element("dt", { text: t(key) }), element("dd", {}, content));
  if (finding.step) term("finding.when", finding.since ? t("finding.since", { step: finding.step, since: finding.since }) : t("finding.at", { step: finding.step }));
  if (finding.evidence?.length) term("finding.evidence", evidenceTable(finding.evidence, t));
  if (finding.ruled_out?.length) term("finding.ruledOut", finding.ruled_out.join("; "));
  if (finding.cause) term("finding.cause", finding.cause);
  const remedy = finding.remedy?.words;
  if (remedy) {
    // Whether it is safe is a word about what can be applied to a model, not about advice.
    const edit = Object.keys(finding.remedy.edit || {}).length > 0;
    term("finding.remedy", element("span", {}, remedy, edit ? " " : "",
      edit ? element("span", { class: "soft", text: t(finding.remedy.safe ? "finding.safe" : "finding.unsafe") }) : ""));
  }
  return element("article", { class: "finding", "data-level": finding.severity, "data-code": finding.code },
    element("p", { class: "finding-head" }, levelMark(finding.severity, t),
      element("span", { class: "soft", text: [finding.code, finding.name].filter(Boolean).join(" ") }),
      finding.confidence ? element("span", { class: "soft confidence", text: t.or(`finding.${finding.confidence}`, finding.confidence) }) : null),
    element(heading, { text: finding.verdict }),
    terms.length ? element("dl", {}, ...terms) : null, ...more);
}
