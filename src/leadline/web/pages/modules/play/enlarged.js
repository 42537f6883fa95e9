// One chart, large, in a dialog: with its key, the sources of the laws, and a table of its numbers.
import { lineChart } from "../chart.js";
import { colours } from "../colours.js";
import { element } from "../elements.js";
import { numberText } from "../numbers.js";

const SCALES = ["log", "linear"];

export function enlarged({ title, about, unit, scale, across, t, onClose }) {
  const buttons = SCALES.map((name) => element("button", {
    type: "button", "aria-pressed": String(name === scale), text: t(`scale.${name}`), onclick: () => rescale(name),
  }));
  const close = element("button", { type: "button", text: t("word.close"), onclick: () => dialog.close() });
  const key = element("ul", { class: "key" });
  const numbers = element("div", { class: "numbers", tabindex: "0", role: "region", "aria-label": t("chart.numbers") });
  const table = element("details", { ontoggle: () => fill() }, element("summary", { text: t("chart.numbers") }), numbers);
  const holder = element("div", { class: "large" });
  const dialog = element("dialog", { class: "enlarged", "aria-label": title, onclose: () => end() }, holder,
    element("p", { class: "soft", text: about }), key, table);
  document.body.append(dialog);
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.showModal();
  const chart = lineChart(holder, {
    title, unit, scale, across, t, heading: "h2",
    tools: [element("span", { class: "segmented", role: "group", "aria-label": t("chart.scale") }, ...buttons), close],
  });
  close.focus();
  let lines = [];

  function rescale(name) {
    buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(SCALES[at] === name)));
    chart.setScale(name);
  }

  function fill() {
    if (!table.open) return;
    const places = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
    const head = element("tr", {}, element("th", { scope: "col", text: across }),
      ...lines.map((line) => element("th", { scope: "col", text: line.label })));
    const rows = places.map((x) => element("tr", {}, element("th", { scope: "row", text: String(x) }),
      ...lines.map((line) => {
        const at = line.x.indexOf(x);
        return element("td", { text: at < 0 ? "" : numberText(line.values[at], line.exponents?.[at] || 0, 5) });
      })));
    numbers.replaceChildren(element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)));
  }

  function end() {
    chart.destroy();
    dialog.remove();
    onClose();
  }

  return {
    close: () => dialog.close(),
    update: (next) => {
      lines = next;
      chart.update(lines);
      key.replaceChildren(...lines.map((line) => {
        const swatch = element("i", { class: line.law ? `dashed ${line.dash}` : line.marker || "" });
        swatch.style.color = colours()[line.colour];
        return element("li", {}, swatch, element("span", { text: line.label }),
          line.source ? element("span", { class: "soft", text: line.source }) : null);
      }));
      fill();
    },
  };
}
