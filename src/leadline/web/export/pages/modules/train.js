// Training needs a computer that computes; a static site says which command gives it.
import { element } from "./elements.js";

export function trainingPanel(sides, { t }) {
  const root = element("div", { class: "training absent" },
    element("h3", { text: t("train.loss") }), element("p", { class: "soft", text: t("export.train") }));
  return {
    root,
    button: (side) => element("button", {
      type: "button", class: "train", disabled: true, text: t("train.start"), title: t("export.train"),
      "aria-label": `${t("train.start")}, ${t("play.design", { side: side.toUpperCase() })}`,
    }),
    stop: () => {},
    destroy: () => {},
  };
}
