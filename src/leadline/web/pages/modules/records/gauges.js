// Gauges now, beside their own past: one line each, the most telling first.
import { element } from "../elements.js";
import { numberText } from "../numbers.js";

const FEW = 8;

export function gaugeTable({ t, onChoose }) {
  let rows = [];
  let maps = new Set();
  let chosen = "";
  let all = false;
  const body = element("tbody", {});
  const more = element("button", { type: "button", class: "more", hidden: true, onclick: () => {
    all = !all;
    draw();
  } });
  const heads = ["gauge", "now", "past", "usual", "curve", "moved"];
  const root = element("section", { class: "gauges", hidden: true, "aria-label": t("run.gauges") },
    element("h2", { text: t("run.gauges") }), element("p", { class: "soft small", text: t("run.gauges.about") }),
    element("div", { class: "gauge-table", tabindex: "0", role: "region", "aria-label": t("run.gauges") },
      element("table", {}, element("thead", {}, element("tr", {}, ...heads.map((name) => element("th", { scope: "col", class: name, text: t(`run.column.${name}`) })))), body)),
    more);

  function draw() {
    const shown = all ? rows : rows.slice(0, FEW);
    const focused = document.activeElement?.dataset?.map;
    body.replaceChildren(...shown.map(line));
    if (focused) body.querySelector(`[data-map="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    more.hidden = rows.length <= FEW;
    more.textContent = all ? t("run.fewer") : t("run.allGauges", { n: rows.length });
    root.hidden = !rows.length;
  }

  function line(row) {
    const side = row.low === null || row.now === null ? "" : row.now > row.high ? "above" : row.now < row.low ? "below" : "";
    const name = row.map && maps.has(row.map)
      ? element("button", { type: "button", class: "link", "data-map": row.map, "aria-pressed": String(row.map === chosen), text: row.label, onclick: () => onChoose(row.map) })
      : element("span", { text: row.label });
    return element("tr", { class: row.warned ? "warned" : "" },
      element("th", { scope: "row" }, row.warned ? element("span", { class: "sign", role: "img", "aria-label": t("run.warned"), text: "!" }) : null, name),
      element("td", { class: "now" }, side ? element("span", { class: "aside", role: "img", "aria-label": t(`run.${side}`), text: side === "above" ? "▲" : "▼" }) : null, numberText(row.now)),
      element("td", { class: "past", text: numberText(row.past) }),
      element("td", { class: "usual", text: row.low === null ? "–" : t("run.range", { low: numberText(row.low), high: numberText(row.high) }) }),
      element("td", { class: "curve" }, sparkline(row)),
      element("td", { class: "moved", text: row.worst ? movedText(row) : "" }));
  }

  function movedText({ worst, scale, map }) {
    const name = map?.startsWith("model/") ? worst.layer : `${t("word.layer")} ${worst.layer}`;
    const now = `${name}: ${numberText(worst.now)}`;
    if (worst.past === null) return now;
    if (scale === "log" && worst.past > 0 && worst.now !== null) return `${now}, ×${numberText(worst.now / worst.past, 0, 2)}`;
    return t("run.was", { now, past: numberText(worst.past) });
  }

  return {
    root,
    update: (next, known) => {
      rows = next;
      maps = known;
      draw();
    },
    mark: (address) => {
      chosen = address;
      body.querySelectorAll("[data-map]").forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.map === address)));
    },
  };
}

const SPACE = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [96, 22];

// The course of a gauge; the band is where eight of ten samples of its past were.
function sparkline({ curve, low, high, scale }) {
  const log = scale === "log" && curve.every((value) => value === null || value > 0) && (low === null || low > 0);
  const place = (value) => (log ? Math.log10(value) : value);
  const values = curve.map((value) => (value === null ? null : place(value)));
  const all = [...values, ...(low === null ? [] : [place(low), place(high)])].filter((value) => value !== null);
  const picture = document.createElementNS(SPACE, "svg");
  picture.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  picture.setAttribute("class", "spark");
  picture.setAttribute("aria-hidden", "true");
  if (!all.length) return picture;
  const [bottom, top] = [Math.min(...all), Math.max(...all)];
  const y = (value) => HEIGHT - 2 - ((HEIGHT - 4) * (value - bottom)) / (top - bottom || 1);
  const x = (at) => 1 + ((WIDTH - 2) * at) / Math.max(1, values.length - 1);
  if (low !== null) {
    const band = document.createElementNS(SPACE, "rect");
    const sizes = { x: 0, y: y(place(high)), width: WIDTH, height: Math.max(1, y(place(low)) - y(place(high))), class: "band" };
    Object.entries(sizes).forEach(([name, value]) => band.setAttribute(name, value));
    picture.append(band);
  }
  let path = "";
  values.forEach((value, at) => {
    if (value !== null) path += `${path && values[at - 1] !== null ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
  });
  const line = document.createElementNS(SPACE, "path");
  line.setAttribute("d", path);
  picture.append(line);
  return picture;
}
