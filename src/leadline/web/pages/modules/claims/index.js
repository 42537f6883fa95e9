// The page of claims, in a frame.
import { element } from "../elements.js";

export function mount(holder, context) {
  holder.append(element("iframe", {
    class: "whole", title: context.t("view.claims"), src: context.api.claimsAddress(context.language),
  }));
  return () => {};
}
