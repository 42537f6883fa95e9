// The map of a sweep while it fills: a row for each design, a column for each depth.
import { element } from "../elements.js";
import { numberText } from "../numbers.js";

export function sweepMap(holder, { t }) {
  let counts = { done: 0, all: 0 };
  const bar = element("progress", { "aria-label": t("sweep.progress") });
  const head = element("tr", {});
  const body = element("tbody", {});
  const signs = ["trains", "fails", "mixed", "hole", "open"];
  const root = element("section", { class: "sweep", "aria-label": t("sweep.title") },
    element("h2", { text: t("sweep.title") }), bar,
    element("div", { class: "sweep-table", tabindex: "0", role: "region", "aria-label": t("sweep.title") },
      element("table", {}, element("thead", {}, head), body)),
    element("ul", { class: "sweep-key" }, ...signs.map((name) => element("li", { "data-cell": name }, sign(name), t(`sweep.${name}`)))));
  holder.append(root);

  function update(map) {
    const places = map.rows.flatMap((row) => row.places);
    const open = map.not_run;
    const done = places.reduce((sum, place) => sum + place.cells.length, 0);
    counts = { done, all: done + open };
    bar.max = Math.max(1, counts.all);
    bar.value = done;
    bar.hidden = !open;
    head.replaceChildren(element("th", { scope: "col", text: t("sweep.design") }),
      ...map.depths.map((depth, at) => element("th", { scope: "col", text: at ? String(depth) : `${map.axis} ${depth}` })),
      element("th", { scope: "col", text: t("sweep.usable") }));
    body.replaceChildren(...map.rows.map((row) => element("tr", {}, element("th", { scope: "row", text: row.name }),
      ...map.depths.map((depth) => cell(row.places.find((place) => place.depth === depth))),
      element("td", { class: "usable", text: row.usable_depth ? String(row.usable_depth.depth) : "–" }))));
  }

  function cell(place) {
    if (!place) return element("td", {});
    const kind = kindOf(place);
    const title = [t(`sweep.${kind}`), place.loss === null ? "" : t("sweep.loss", { loss: numberText(place.loss) }), ...reasons(place)].filter(Boolean).join(" · ");
    const text = kind === "open" ? t("sweep.openSeeds", { n: place.not_run }) : t("sweep.seeds", { n: place.trained, all: place.seeds });
    return element("td", { "data-cell": kind, title }, sign(kind), element("span", { text }),
      place.not_run && kind !== "open" ? element("span", { class: "soft", text: ` +${place.not_run}` }) : null);
  }

  return {
    update,
    complete: () => counts.done === counts.all,
    progress: () => t("sweep.cells", counts),
  };
}

const SIGNS = { trains: "●", fails: "○", mixed: "◐", hole: "✕", open: "·" };

function sign(kind) {
  return element("i", { "aria-hidden": "true", text: SIGNS[kind] });
}

function kindOf(place) {
  if (!place.cells.length) return "open";
  if (!place.seeds) return "hole";
  return place.trained === place.seeds ? "trains" : place.trained ? "mixed" : "fails";
}

function reasons(place) {
  return [...new Set(place.cells.filter((cell) => cell.status !== "finished").map((cell) => cell.reason).filter(Boolean))].slice(0, 3);
}
