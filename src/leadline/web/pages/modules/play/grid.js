// The small charts, one for each quantity, and the large one that opens from any of them.
import { lineChart } from "../chart.js";
import { element } from "../elements.js";
import { inFrames } from "../frames.js";
import { enlarged } from "./enlarged.js";
import { linesOf } from "./lines.js";

export function quantityLabel(quantity, t) {
  return t.or(`quantity.${quantity.name}`, quantity.label);
}

export function quantityAbout(quantity, t) {
  return t.or(`quantity.${quantity.name}.about`, quantity.about);
}

// Returns { root, update(results), watch(names), destroy() }.
export function chartGrid(quantities, { t, after = [] }) {
  const root = element("div", { class: "curves" });
  let results = { a: null, b: null };
  let large = null;
  const charts = new Map();
  for (const quantity of quantities) {
    const title = quantityLabel(quantity, t);
    const button = element("button", {
      type: "button", class: "quiet enlarge", "aria-label": t("chart.enlarge", { title }), text: "⤢", onclick: () => open(quantity),
    });
    const chart = lineChart(root, {
      title, about: quantityAbout(quantity, t), scale: quantity.scale, across: t("word.layer"), t, tools: [button],
    });
    chart.root.dataset.quantity = quantity.name;
    chart.plot.addEventListener("click", () => open(quantity));
    chart.plot.addEventListener("keydown", (event) => { if (event.key === "Enter") open(quantity); });
    charts.set(quantity.name, chart);
  }
  root.append(...after);

  function open(quantity) {
    const title = quantityLabel(quantity, t);
    large = enlarged({
      title, about: quantityAbout(quantity, t), unit: quantity.symbol || quantity.unit, scale: quantity.scale,
      across: t("word.layer"), t, onClose: () => { large = null; },
    });
    large.quantity = quantity.name;
    large.update(linesOf(quantity.name, results, t));
  }

  return {
    root,
    update: (next) => {
      results = next;
      for (const [name, chart] of charts) inFrames(chart, () => chart.update(linesOf(name, results, t)));
      if (large) inFrames(root, () => large?.update(linesOf(large.quantity, results, t)));
    },
    // Marks the curves that a story tells of; returns which of the names are curves.
    watch: (names) => {
      for (const [name, chart] of charts) chart.root.classList.toggle("watched", names.includes(name));
    },
    destroy: () => {
      large?.close();
      for (const chart of charts.values()) chart.destroy();
    },
  };
}
