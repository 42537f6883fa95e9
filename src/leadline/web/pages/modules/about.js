// What a word means, for whoever wants to know: a small button "?" beside it. Its sentence opens on
// hover and focus, stays on a click, and closes with Escape.
import { element, freshId } from "./elements.js";

let sheet = null;
let owner = null;
let pinned = false;

function theSheet() {
  if (!sheet) {
    sheet = element("div", { class: "about-sheet", role: "tooltip", id: freshId("about"), hidden: true });
    sheet.addEventListener("pointerleave", (event) => {
      if (!pinned && event.relatedTarget !== owner) close();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && owner) close();
    });
    document.addEventListener("pointerdown", (event) => {
      if (owner && !sheet.contains(event.target) && !owner.contains(event.target)) close();
    });
  }
  return sheet;
}

function close() {
  if (!owner) return;
  sheet.hidden = true;
  owner.setAttribute("aria-expanded", "false");
  owner.removeAttribute("aria-describedby");
  owner = null;
  pinned = false;
}

function open(button, title, text) {
  if (owner && owner !== button) close();
  const node = theSheet();
  (button.closest("dialog") || document.body).append(node);
  owner = button;
  node.replaceChildren(element("b", { text: title }), element("span", { text }));
  node.hidden = false;
  button.setAttribute("aria-expanded", "true");
  button.setAttribute("aria-describedby", node.id);
  const place = button.getBoundingClientRect();
  const left = Math.max(8, Math.min(place.left - 12, innerWidth - node.offsetWidth - 8));
  const below = place.bottom + 4 + node.offsetHeight < innerHeight;
  node.style.left = `${left}px`;
  node.style.top = `${below ? place.bottom + 4 : Math.max(4, place.top - 4 - node.offsetHeight)}px`;
}

// `text` may be a function, for sentences that change with a choice.
export function about(title, text, label) {
  const words = () => (typeof text === "function" ? text() : text);
  const button = element("button", { class: "about", type: "button", "aria-expanded": "false", "aria-label": label, text: "?" });
  button.addEventListener("pointerenter", (event) => {
    if (event.pointerType !== "touch" && !pinned) open(button, title, words());
  });
  button.addEventListener("pointerleave", (event) => {
    if (owner === button && !pinned && event.relatedTarget !== sheet) close();
  });
  button.addEventListener("focus", () => {
    if (button.matches(":focus-visible")) open(button, title, words());
  });
  button.addEventListener("blur", () => {
    if (owner === button) close();
  });
  button.addEventListener("click", () => {
    if (owner === button && pinned) return close();
    open(button, title, words());
    pinned = true;
  });
  return button;
}
