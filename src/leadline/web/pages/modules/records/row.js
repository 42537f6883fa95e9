// One line of the list. It is changed in place, so that focus and ticks stay where they are.
import { element, freshId, setText } from "../elements.js";
import { levelMark } from "../findings.js";
import { addressText } from "../state.js";
import { folderOf, kindText, sizeText, statusMark, whenText } from "./entry.js";

export function recordRow(entry, { t, language, onTick }) {
  const id = freshId("record");
  const tick = element("input", { type: "checkbox", onchange: () => onTick(tick.checked) });
  const folder = element("span", { class: "folder" });
  const name = element("a", { id, class: "record-name", href: addressText("record", entry.id, {}) });
  const mark = element("span", { class: "mark" });
  const sentence = element("span", { class: "said" });
  const kind = element("td", { class: "kind", role: "cell" });
  const when = element("td", { class: "when", role: "cell" });
  const size = element("td", { class: "size", role: "cell" });
  const status = element("td", { class: "state", role: "cell" });
  const root = element("tr", { role: "row", "data-record": entry.id },
    element("td", { class: "tick", role: "cell" }, element("label", {}, tick)),
    element("th", { class: "name", scope: "row", role: "rowheader" }, folder, name),
    element("td", { class: "verdict", role: "cell" }, mark, sentence),
    kind, when, size, status);
  let shown = "";

  function update(next) {
    const text = JSON.stringify(next);
    if (text === shown) return;
    shown = text;
    setText(folder, folderOf(next));
    setText(name, next.name);
    tick.setAttribute("aria-label", t("records.tick", { name: next.name }));
    tick.disabled = next.status === "damaged";
    const level = next.verdict?.level;
    root.dataset.level = level || "none";
    root.dataset.status = next.status;
    mark.replaceChildren(...[levelMark(level, t, level === "healthy" ? t("records.healthy") : undefined)].filter(Boolean));
    setText(sentence, next.verdict ? next.verdict.sentence : t("records.reading"));
    setText(kind, next.steps ? t("records.kindSteps", { kind: kindText(next.kind, t), n: next.steps }) : next.kind ? kindText(next.kind, t) : "");
    setText(when, whenText(next.made, language));
    setText(size, sizeText(next.size));
    status.replaceChildren(statusMark(next.status, t));
  }

  update(entry);
  return {
    root, update,
    tick: (flag) => {
      tick.checked = flag;
    },
  };
}
