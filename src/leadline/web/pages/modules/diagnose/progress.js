// How far a diagnosis is: the stage in words, and a bar.
import { element, setText } from "../elements.js";

export function progressPart(t) {
  const stage = element("p", { class: "stage-word", role: "status" });
  const bar = element("progress", { "aria-label": t("diagnose.progress") });
  const root = element("section", { class: "diagnose-progress", hidden: true, "aria-label": t("diagnose.progress") }, stage, bar);
  let halting = false;
  let words = "";
  const write = (text) => {
    words = text;
    setText(stage, text);
  };

  return {
    root,
    start: () => {
      halting = false;
      root.hidden = false;
      bar.removeAttribute("value");
      write(t("diagnose.starting"));
    },
    update: ({ done, total, what }) => {
      root.hidden = false;
      if (total) {
        bar.max = total;
        bar.value = done;
      } else bar.removeAttribute("value");
      if (halting) return;
      write(total ? t("diagnose.stage", { what, done, total }) : what);
    },
    stopping: () => {
      halting = true;
      write(t("diagnose.stopping"));
    },
    lost: () => setText(stage, t("records.lost")),
    back: () => setText(stage, words),
    hide: () => {
      root.hidden = true;
    },
  };
}
