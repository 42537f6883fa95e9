// What a diagnosis found: the verdict first, each finding with its evidence, and what the remedy did
// on a copy, before and after.
import { element } from "../elements.js";
import { findingCard, levelMark } from "../findings.js";

export function resultPart(t) {
  const message = element("p", { class: "diagnose-message", role: "alert", hidden: true });
  const verdict = element("section", { class: "diagnose-verdict", "aria-live": "polite", hidden: true });
  const remedy = element("section", { class: "diagnose-remedy", "aria-label": t("diagnose.remedy"), hidden: true });
  const findings = element("section", { class: "diagnose-findings", "aria-label": t("run.findings"), hidden: true });
  const coverage = element("section", { class: "diagnose-coverage", "aria-label": t("diagnose.looked"), hidden: true });
  const root = element("div", { class: "diagnose-result" }, message, verdict, findings, remedy, coverage);
  let diagnosis = null;

  const worst = (one) => (one.healthy ? "healthy" : one.findings[0]?.severity);

  function clear() {
    diagnosis = null;
    for (const part of [message, verdict, findings, remedy, coverage]) {
      part.hidden = true;
      part.replaceChildren();
    }
  }

  function say(text, kind) {
    message.hidden = false;
    message.dataset.kind = kind;
    message.replaceChildren(text);
  }

  function showVerdict(event) {
    diagnosis = event.diagnosis;
    const [first, ...rest] = diagnosis.answer;
    verdict.hidden = false;
    verdict.dataset.level = worst(diagnosis);
    verdict.replaceChildren(levelMark(worst(diagnosis), t) ?? "", element("h2", { text: first }), ...rest.map((text) => element("p", { text })),
      ...(event.missing.length ? [element("p", { class: "soft", text: t("diagnose.missing", { n: event.missing.length, names: event.missing.slice(0, 3).join(", ") }) })] : []));
    const { looked, could_not: blind } = diagnosis.coverage;
    const follows = diagnosis.explained;
    findings.replaceChildren(...diagnosis.findings.map((one) => findingCard(one, t)),
      ...(follows.length ? [element("details", {}, element("summary", { text: t("diagnose.follows", { n: follows.length }) }),
        ...follows.map((one) => findingCard(one, t, { more: [element("p", { class: "soft small", text: t("diagnose.followsFrom", { code: one.explained_by }) })] })))] : []));
    findings.hidden = !findings.children.length;
    coverage.hidden = false;
    coverage.replaceChildren(element("details", { class: "coverage" }, element("summary", { text: t("diagnose.coverage", { n: looked.length, blind: blind.length }) }),
        element("p", { class: "small", text: looked.join(" ") }),
        element("ul", {}, ...blind.map((one) => element("li", {}, element("b", { text: one.code }), ` ${one.why}`)))));
  }

  function showRemedy(event) {
    remedy.hidden = false;
    remedy.replaceChildren(element("h2", { text: t("diagnose.remedy") }));
    if (event.words) remedy.append(element("p", {}, element("b", { text: `${event.code} ${event.name}: ` }), event.words));
    if (event.diff) remedy.append(element("pre", { tabindex: "0", text: event.diff }));
    if (event.reason) remedy.append(element("p", { text: event.reason }));
  }

  function showAgain(event) {
    const { proof, diagnosis: after } = event;
    const level = proof.helps ? "healthy" : "warning";
    remedy.hidden = false;
    remedy.append(
      element("div", { class: "again", "data-level": level }, levelMark(level, t, event.sentence)),
      element("div", { class: "before-after" }, column("diagnose.before", diagnosis, new Set()), column("diagnose.after", after, new Set(proof.new))));
  }

  // The findings of one visit; those that were not there before are marked.
  function column(key, one, fresh) {
    const faults = one.findings.filter((finding) => finding.severity !== "note");
    return element("section", {}, element("h3", { text: t(key) }),
      faults.length
        ? element("ul", {}, ...faults.map((finding) => element("li", {}, levelMark(finding.severity, t), ` ${finding.code} `,
          element("span", { text: finding.verdict }), fresh.has(finding.verdict) ? element("b", { text: ` ${t("diagnose.new")}` }) : null)))
        : element("p", {}, levelMark("healthy", t), ` ${t("diagnose.nothingLeft")}`));
  }

  return {
    root, clear, verdict: showVerdict, remedy: showRemedy, again: showAgain,
    fail: (text) => say(text, "error"),
    stopped: () => say(t("diagnose.stopped"), "stopped"),
  };
}
