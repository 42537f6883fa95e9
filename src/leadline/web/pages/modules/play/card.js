// The card of one design: its verdict first and large, then its depth, then what can be done.
import { about } from "../about.js";
import { element, setText } from "../elements.js";
import { countText } from "../numbers.js";
import { control } from "./controls.js";
import { knobAbout, knobLabel } from "./knobs.js";
import { verdictText } from "./verdict.js";

const MARKS = { serious: "✕", warning: "!", note: "i", healthy: "✓" };

// Returns { root, set(design), verdict(v), stale(), facts(f), trained(step), fail(reason), busy(flag),
// depthFails(reason) }.
export function designCard(side, { t, depth, onDepth, buttons, offered }) {
  const letter = side.toUpperCase();
  const sign = element("span", { class: "sign", "aria-hidden": "true" });
  const level = element("span", { class: "level" });
  const sentence = element("p", { class: "sentence", "aria-live": "polite" });
  setText(sentence, t("play.computing"));
  const reason = element("p", { class: "reason", role: "alert", hidden: true });
  const findings = element("ul", { class: "findings" });
  const why = element("details", { class: "why", hidden: true }, element("summary", { text: t("play.why") }), findings);
  const facts = element("span", { class: "facts" });
  const trained = element("span", { class: "trained" });
  const slider = depth && control(depth, {
    t, big: true, label: t("play.knobOf", { knob: knobLabel(depth, t), side: letter }), onChange: onDepth,
  });
  const label = depth && knobLabel(depth, t);
  const root = element("section", { class: `design ${side} waiting`, "aria-label": t("play.design", { side: letter }) },
    element("header", {},
      element("span", { class: "letter", "aria-hidden": "true", text: letter }),
      element("div", { class: "verdict" }, element("p", { class: "levels" }, sign, level, trained), sentence, reason)),
    depth && element("div", { class: "depth" },
      element("span", { class: "depth-name" }, element("span", { text: label }),
        about(label, () => knobAbout(depth, t), t("chart.about", { title: label }))),
      slider.root),
    element("footer", {}, why, facts, element("span", { class: "buttons" }, ...buttons)));

  return {
    root,
    set: (design) => {
      if (slider && offered) slider.limit(offered(design, depth.name));
      slider?.set(design[depth.name]);
    },
    depthFails: (text) => slider?.fail(text),
    busy: (flag) => root.classList.toggle("busy", flag),
    verdict: (verdict) => {
      root.classList.remove("waiting", "stale");
      if (root.dataset.level !== verdict.level) root.dataset.level = verdict.level;
      setText(sign, MARKS[verdict.level] || "");
      setText(level, t(`level.${verdict.level}`));
      setText(sentence, verdictText(verdict, t));
      const list = (verdict.findings || []).map((finding) => element("li", {},
        element("b", { text: [finding.code, finding.name].filter(Boolean).join(" ") }), " ", [finding.sentence, finding.do].filter(Boolean).join(" ")));
      findings.replaceChildren(...list);
      why.hidden = !list.length;
    },
    // The verdict belongs to an earlier design until the next one comes.
    stale: () => root.classList.add("stale"),
    fail: (text) => {
      reason.hidden = !text;
      setText(reason, text ? `${t("play.cannot")} ${text}` : "");
      root.classList.toggle("failed", Boolean(text));
    },
    facts: (one) => setText(facts, t("play.facts", { parameters: countText(one.parameters), tokens: one.tokens })),
    trained: (step) => setText(trained, step === null ? "" : t("play.afterSteps", { n: step })),
  };
}
