// The page of claims, in a frame. The query `claim=NAME` opens it at that claim.
import { element } from "../elements.js";

export function mount(holder, context) {
  const place = () => {
    const name = context.address.read().get("claim");
    return `${context.api.claimsAddress(context.language)}${name ? `#${encodeURIComponent(name)}` : ""}`;
  };
  const frame = element("iframe", { class: "whole", title: context.t("view.claims"), src: place() });
  holder.append(frame);
  return context.onAddress(() => frame.setAttribute("src", place()));
}
