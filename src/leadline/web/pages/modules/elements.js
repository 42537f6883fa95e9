// Elements of the page, made in one expression. Text is always set as text, never as HTML.

// element("button", { class: "chip", type: "button", onclick: f, "aria-pressed": "true" }, "text", child)
export function element(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "text") node.textContent = value;
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

let counted = 0;

// An id that no other element of the page has.
export function freshId(word) {
  counted += 1;
  return `${word}-${counted}`;
}

// Sets text only where it changed, so that nothing is laid out again without need.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const BRAND = "M10 1v9M6.5 3.5h7M7.5 6.5h5M10 10l3.2 8H6.8z";

// The mark of the project, a lead on its line.
export function mark() {
  const space = "http://www.w3.org/2000/svg";
  const picture = document.createElementNS(space, "svg");
  picture.setAttribute("viewBox", "0 0 20 20");
  picture.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(space, "path");
  path.setAttribute("d", BRAND);
  picture.append(path);
  return picture;
}
