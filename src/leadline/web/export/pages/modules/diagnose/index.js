// A diagnosis reads a model, which a static site cannot: the command that does.
import { element } from "../elements.js";

export function mount(holder, context) {
  const { t } = context;
  holder.append(element("div", { class: "message" },
    element("h1", { text: t("view.diagnose") }),
    element("p", { text: t("export.diagnose") }),
    element("pre", {}, element("code", { text: "leadline diagnose MODEL\nleadline lab" }))));
  return () => {};
}
