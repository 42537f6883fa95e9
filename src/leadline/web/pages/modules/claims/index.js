// The page of claims, in a frame; #/claims?claim=NAME begins at that claim.
import { element } from "../elements.js";

export function mount(holder, context) {
  const claim = context.address.read().get("claim");
  const place = claim ? `#${encodeURIComponent(claim)}` : "";
  holder.append(element("iframe", {
    class: "whole", title: context.t("view.claims"), src: context.api.claimsAddress(context.language) + place,
  }));
  return () => {};
}
