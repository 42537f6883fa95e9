// The view of lessons; it says what is missing until it is there.
import { element } from "../elements.js";

export function mount(holder, context) {
  holder.append(element("p", { class: "message", text: context.t("view.missing") }));
  return () => {};
}
