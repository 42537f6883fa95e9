// A map of rows by columns on a canvas; see the top of chart.js.
import { about } from "./about.js";
import { onTheme, themeName } from "./colours.js";
import { element, freshId, setText } from "./elements.js";
import { numberText } from "./numbers.js";

// From the page to the ink, evenly light to the eye; the dark page runs the other way.
const RAMP = {
  light: ["#e8eff4", "#b5d9f1", "#7fc3ed", "#4eace2", "#3393cd", "#127ab9", "#155c8d", "#1c3d59", "#18202a"],
  dark: ["#1d2834", "#1f4360", "#165f90", "#127ab9", "#3393cd", "#4eace2", "#7fc2eb", "#b5d7ee", "#e7ebef"],
};
const LOST = { light: [213, 94, 0], dark: [245, 139, 76] };

function channels(colour) {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
}

function shade(share, ramp) {
  const place = Math.max(0, Math.min(1, share)) * (ramp.length - 1);
  const at = Math.min(ramp.length - 2, Math.floor(place));
  return ramp[at].map((low, channel) => low + (ramp[at + 1][channel] - low) * (place - at));
}

export function heatMapOf(holder, options) {
  const { t } = options;
  const log = options.scale === "log";
  const id = freshId("map");
  let map = { rows: [], columns: [], values: [], marks: [] };
  let range = [0, 1];
  let cell = null;

  const canvas = element("canvas", {
    tabindex: "0", role: "application", "aria-roledescription": "map", "aria-labelledby": id, width: 1, height: 1,
  });
  const axis = element("div", { class: "heat-rows", "aria-hidden": "true" });
  const steps = element("div", { class: "heat-columns", "aria-hidden": "true" });
  const marks = element("div", { class: "heat-marks" });
  const cursor = element("i", { class: "heat-cursor", hidden: true });
  const readout = element("p", { class: "heat-readout", "aria-live": "polite", text: "\u00a0" });
  const ramp = element("span", { class: "heat-ramp" });
  const root = element("section", { class: "heat-map", "aria-labelledby": id },
    element("header", {}, element(options.heading || "h3", { id, text: options.title }),
      options.unit ? element("span", { class: "unit", text: options.unit }) : null,
      options.about ? about(options.title, options.about, t("chart.about", { title: options.title })) : null, ramp),
    element("div", { class: "heat-frame" }, axis, element("div", { class: "heat-field" }, canvas, marks, cursor), steps),
    readout);
  holder.append(root);

  const place = (value) => (log ? (value > 0 ? Math.log10(value) : null) : value);
  const finite = (value) => value !== null && value !== undefined && Number.isFinite(value);

  function update(next) {
    map = { marks: [], ...next };
    let [low, high] = [Infinity, -Infinity];
    for (const row of map.values) {
      for (const value of row) {
        const at = finite(value) ? place(value) : null;
        if (at === null) continue;
        if (at < low) low = at;
        if (at > high) high = at;
      }
    }
    range = low > high ? [0, 1] : high - low < 1e-9 ? [low - 0.5, high + 0.5] : [low, high];
    paint();
    words();
  }

  function paint() {
    const [height, width] = [map.rows.length, map.columns.length];
    if (!height || !width) return;
    canvas.width = width;
    canvas.height = height;
    const c = canvas.getContext("2d");
    const picture = c.createImageData(width, height);
    const colours = RAMP[themeName()].map(channels);
    map.values.forEach((row, y) => {
      for (let x = 0; x < width; x++) {
        const value = row[x];
        const at = 4 * (y * width + x);
        if (value === undefined) continue; // not measured: the page shows through
        const spot = finite(value) ? place(value) : null;
        const colour = spot === null
          ? (finite(value) ? colours[0] : LOST[themeName()]) : shade((spot - range[0]) / (range[1] - range[0]), colours);
        picture.data.set([...colour, 255], at);
      }
    });
    c.putImageData(picture, 0, 0);
    const stops = RAMP[themeName()].join(", ");
    ramp.replaceChildren(ends(0), element("i", {}), ends(1));
    ramp.children[1].style.background = `linear-gradient(90deg, ${stops})`;
  }

  const ends = (at) => element("span", { text: numberText(log ? 10 ** range[at] : range[at]) });

  function words() {
    const [height, width] = [map.rows.length, map.columns.length];
    const every = Math.max(1, Math.ceil(height / 8));
    axis.replaceChildren(...map.rows.filter((_, at) => at % every === 0).map((name, at) => {
      const span = element("span", { text: `${at ? "" : `${options.rows || "layer"} `}${name}` });
      span.style.top = `${(100 * (at * every + 0.5)) / height}%`;
      return span;
    }));
    steps.replaceChildren(element("span", { text: width ? `${options.columns || "step"} ${map.columns[0]}` : "" }),
      element("span", { text: width > 1 ? String(map.columns[width - 1]) : "" }));
    marks.replaceChildren(...map.marks.map((one) => {
      const line = element("b", { title: one.label, "aria-label": one.label, role: "img" });
      const at = map.columns.findIndex((column) => column >= one.column);
      line.style.left = `${(100 * Math.max(0, at)) / width}%`;
      return line;
    }));
    root.style.setProperty("--rows", height);
    if (cell) read(Math.min(cell[0], height - 1), Math.min(cell[1], width - 1));
  }

  function read(row, column) {
    if (row < 0 || column < 0) return;
    cell = [row, column];
    const value = map.values[row]?.[column];
    const text = value === undefined ? t("chart.nothing") : finite(value) ? numberText(value, 0, 4) : t("chart.gaps");
    setText(readout, `${options.rows || "layer"} ${map.rows[row]}, ${options.columns || "step"} ${map.columns[column]}: ${text}`);
    cursor.hidden = false;
    cursor.style.left = `${(100 * column) / map.columns.length}%`;
    cursor.style.top = `${(100 * row) / map.rows.length}%`;
    cursor.style.width = `${100 / map.columns.length}%`;
    cursor.style.height = `${100 / map.rows.length}%`;
  }

  function leave() {
    cell = null;
    cursor.hidden = true;
    readout.textContent = "\u00a0";
  }

  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const at = (share, count) => Math.max(0, Math.min(count - 1, Math.floor(share * count)));
    read(at((event.clientY - box.top) / box.height, map.rows.length), at((event.clientX - box.left) / box.width, map.columns.length));
  });
  canvas.addEventListener("pointerleave", () => { if (document.activeElement !== canvas) leave(); });
  canvas.addEventListener("blur", leave);
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (!moves[event.key] || !map.rows.length) return;
    event.preventDefault();
    const [down, right] = moves[event.key];
    const [row, column] = cell || [0, right > 0 ? -1 : map.columns.length];
    read(Math.max(0, Math.min(map.rows.length - 1, row + down)), Math.max(0, Math.min(map.columns.length - 1, column + right)));
  });
  const forget = onTheme(paint);

  return {
    root, update,
    destroy: () => {
      forget();
      root.remove();
    },
  };
}
