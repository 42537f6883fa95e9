// Charts: lines over depth or steps, and maps of layers by steps.
//
// lineChart(holder, options) builds a chart in `holder` and returns a handle.
//   options: title          heading of the chart
//            about          a sentence that explains the quantity (behind a "?"), or absent
//            unit           shown beside the title
//            scale          "log" | "linear" (default "linear")
//            across         the word below the horizontal axis, such as "layer" or "step"
//            t              words of the page; without it the chart speaks English
//            tools          elements for the right end of the header, such as buttons
//            heading        "h3" (default), or another tag for the title
//            empty          the sentence that stands in a chart without lines
//   handle:  update(lines)  draws these lines; fast enough for every frame of a drag
//            setScale(s)    "log" or "linear"
//            note(text)     a sentence below the chart, "" for none
//            destroy()      takes everything away
//            root, plot     the elements of the whole chart and of its focusable drawing
//            lines()        what was drawn last
//   a line:  label          "A: attention"
//            x, values      numbers; null is a gap
//            exponents      optional; the value is values[i] * 10 ** exponents[i]
//            colour         "a" | "b" | "ink" | "soft" | "green" | "purple" | "ochre" | "serious"
//            dash           optional: "dash" | "dot" | "longdash"
//            marker         optional: "circle" | "square" | "triangle"
//            law            true for what theory predicts: thin, dashed, labelled on the line
//            dim            true for what no longer holds: drawn pale
//   The arrow keys read a chart: left and right along a line, up and down from line to line.
//
// heatMap(holder, options) draws a map of rows by columns on a canvas and returns a handle.
//   options: title, about, unit, t as above
//            scale          "log" | "linear"
//            rows, columns  the words of the axes: "layer", "step"
//   handle:  update(map)    map = { rows: [names], columns: [numbers], values: [[row 0 ...], ...],
//                           marks: [{ column, label }] }; the first row stands at the top,
//                           null is hatched as "no number"
//            destroy()
//   The arrow keys go from cell to cell.
import { about } from "./about.js";
import { colours, onTheme } from "./colours.js";
import { drawMarkers, labelLaws } from "./drawn.js";
import { element, freshId, setText } from "./elements.js";
import { heatMapOf } from "./heat.js";
import { decadeText, decadeTicks, numberText, roundTicks, tickText } from "./numbers.js";
import { columnsOf, describe, plotted, rangeOf } from "./plotted.js";

const ENGLISH = {
  "chart.nothing": "no numbers yet", "chart.about": "What is this? {title}", "chart.keys": "arrow keys read the values",
  "chart.zeros": "exactly 0 has no place on a logarithmic axis: marks on the lower edge", "chart.gaps": "not a finite number",
};
const DASHES = { dash: [7, 4], dot: [2, 3], longdash: [12, 4] };

const english = (key, values) =>
  (ENGLISH[key] ?? key).replace(/\{(\w+)\}/g, (hole, name) => values?.[name] ?? hole);

export function heatMap(holder, options) {
  return heatMapOf(holder, { ...options, t: options.t || english });
}

export function lineChart(holder, options) {
  const t = options.t || english;
  const across = options.across || "layer";
  let scale = options.scale || "linear";
  let lines = [];
  let points = [];
  let range = { x: [0, 1], y: [0, 1] };
  let view = null;
  let reading = null;
  let fixedNote = "";

  const id = freshId("chart");
  const title = element(options.heading || "h3", { id, text: options.title });
  const plot = element("div", {
    class: "plot without", tabindex: "0", role: "application", "aria-roledescription": "chart", "aria-labelledby": id,
    "aria-describedby": `${id}-words`,
  });
  const tip = element("div", { class: "tip", hidden: true });
  const spoken = element("p", { class: "unseen", "aria-live": "polite" });
  const summary = element("p", { class: "unseen", id: `${id}-words` });
  const note = element("p", { class: "chart-note", hidden: true });
  const empty = element("p", { class: "empty", text: options.empty || t("chart.nothing") });
  const root = element("section", { class: "chart", "aria-labelledby": id },
    element("header", {}, title,
      options.unit ? element("span", { class: "unit", text: options.unit }) : null,
      options.about ? about(options.title, options.about, t("chart.about", { title: options.title })) : null,
      element("span", { class: "chart-tools" }, ...(options.tools || []))),
    element("div", { class: "stage" }, plot, empty, tip), note, summary, spoken);
  holder.append(root);

  const log = () => scale === "log";
  const styleOf = (line) => ({
    width: line.law ? 1.3 : 2.2,
    dash: DASHES[line.law ? line.dash || "dash" : line.dash],
    alpha: line.dim ? 0.3 : line.law ? 0.85 : 1,
  });
  const slot = (at) => ({
    stroke: () => colours()[lines[at - 1]?.colour || "ink"],
    points: { show: false },
    ...(lines[at - 1] ? styleOf(lines[at - 1]) : { width: 1 }),
  });

  function build() {
    const font = `11px ${getComputedStyle(document.body).fontFamily}`;
    const axis = {
      stroke: () => colours().soft, font, labelFont: font,
      grid: { stroke: () => colours().grid, width: 1 },
      ticks: { show: false }, gap: 4,
    };
    view = new uPlot({
      width: plot.clientWidth, height: plot.clientHeight, padding: [6, 10, 0, 0],
      legend: { show: false },
      cursor: { x: true, y: false, points: { show: false }, drag: { x: false, y: false } },
      scales: { x: { time: false, range: () => range.x }, y: { range: () => range.y } },
      axes: [
        { ...axis, size: 20, label: plot.clientHeight > 240 ? across : undefined, labelSize: 18,
          splits: (u, _, low, high) => roundTicks(Math.max(0, low), high, u.width / 55, true),
          values: (u, marks) => marks.map((mark, at) => (at === 0 && plot.clientHeight <= 240 ? `${across} ${tickText(mark)}` : tickText(mark))) },
        { ...axis, size: (u, texts) => 10 + 6.2 * Math.max(2, ...(texts || []).map((text) => text.length)),
          splits: (u, _, low, high) => (log() ? decadeTicks : roundTicks)(low, high, Math.max(3, plot.clientHeight / 38)),
          filter: (u, marks) => marks,
          values: (u, marks) => marks.map(log() ? decadeText : tickText) },
      ],
      series: [{}, ...points.map((_, at) => slot(at + 1))],
      hooks: {
        draw: [(u) => {
          drawMarkers(u, lines, points, colours());
          labelLaws(u, lines, points, colours());
        }],
        setCursor: [hover],
      },
    }, columnsOf(points), plot);
    view.over.addEventListener("pointerleave", () => { if (document.activeElement !== plot) hide(); });
  }

  function draw() {
    if (!plot.clientWidth || !plot.clientHeight) return;
    if (!view) return build();
    while (view.series.length - 1 < points.length) view.addSeries(slot(view.series.length), view.series.length);
    for (let at = 1; at < view.series.length; at++) {
      const series = view.series[at];
      const style = lines[at - 1] ? styleOf(lines[at - 1]) : { width: 0, dash: undefined, alpha: 0 };
      Object.assign(series, style);
    }
    const data = columnsOf(points);
    while (data.length < view.series.length) data.push(new Array(data[0].length).fill(null));
    view.batch(() => view.setData(data));
  }

  function update(next) {
    lines = next;
    points = lines.map((line) => plotted(line, log()));
    range = rangeOf(points, lines, log());
    const any = points.some((one) => one.y.some((value) => value !== null));
    plot.classList.toggle("without", !any);
    empty.hidden = any || points.some((one) => one.zeros || one.gaps);
    const zeros = points.some((one) => one.zeros);
    const gaps = points.some((one, at) => one.gaps && !lines[at].law);
    say(zeros ? t("chart.zeros") : gaps ? t("chart.gaps") : "");
    setText(summary, describe(lines, across, numberText) || t("chart.nothing"));
    draw();
    if (reading) show(reading.line, reading.x);
  }

  function say(text) {
    const words = [fixedNote, text].filter(Boolean).join(" · ");
    setText(note, words);
    note.hidden = !words;
  }

  function hide() {
    tip.hidden = true;
    reading = null;
  }

  function hover(u) {
    if (!(u.cursor.left >= 0) || !points.length) return;
    const place = u.posToVal(u.cursor.left, "x");
    const all = u.data[0];
    if (!all.length) return;
    const x = all.reduce((best, one) => (Math.abs(one - place) < Math.abs(best - place) ? one : best), all[0]);
    show(null, x);
  }

  // The values of every line at one place; `chosen` is the line that the keys read.
  function show(chosen, x) {
    const rows = lines.map((line, at) => [line, line.x.indexOf(x), at]).filter(([, at]) => at >= 0);
    if (!view || !rows.length) return hide();
    reading = { line: chosen, x };
    tip.replaceChildren(element("b", { text: `${across} ${x}` }), ...rows.map(([line, at, index]) => {
      const row = element("span", { class: `row ${line.law ? "law" : ""} ${index === chosen ? "chosen" : ""}` },
        element("i", {}), element("span", { text: line.label }), element("b", { text: valueText(line, at) }));
      row.firstChild.style.background = colours()[line.colour || "ink"];
      return row;
    }));
    tip.hidden = false;
    const left = view.over.offsetLeft + view.valToPos(x, "x");
    const width = tip.offsetWidth;
    const room = plot.clientWidth;
    tip.style.left = `${left + 12 + width <= room ? left + 12 : Math.max(0, left - 12 - width)}px`;
    tip.style.top = "0px";
    if (chosen !== null) {
      view.setCursor({ left: view.valToPos(x, "x"), top: 1 }, false);
      const line = lines[chosen];
      setText(spoken, `${line.label}, ${across} ${x}: ${valueText(line, line.x.indexOf(x))}`);
    }
  }

  const valueText = (line, at) =>
    line.values[at] === null || line.values[at] === undefined
      ? t("chart.gaps") : numberText(line.values[at], line.exponents?.[at] || 0, 4);

  plot.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -1e9], End: [0, 1e9] };
    if (event.key === "Escape" && !tip.hidden) {
      event.stopPropagation();
      event.preventDefault();
      return hide();
    }
    if (!moves[event.key] || !lines.length) return;
    event.preventDefault();
    const [aside, along] = moves[event.key];
    const before = reading?.line ?? null;
    const chosen = before === null ? 0 : (before + aside + lines.length) % lines.length;
    const line = lines[chosen];
    const near = reading ? nearest(line.x, reading.x) : along > 0 ? -1 : 0;
    const at = Math.max(0, Math.min(line.x.length - 1, near + (before === null && !along ? 1 : along)));
    show(chosen, line.x[at]);
  });
  plot.addEventListener("blur", hide);

  const watcher = new ResizeObserver(() => {
    if (!plot.clientWidth || !plot.clientHeight) return;
    if (!view) draw();
    else if (view.width !== plot.clientWidth || view.height !== plot.clientHeight) {
      view.setSize({ width: plot.clientWidth, height: plot.clientHeight });
    }
  });
  watcher.observe(plot);
  const forget = onTheme(() => view?.redraw(true, true));

  return {
    root, plot, update,
    lines: () => lines,
    setScale: (name) => {
      scale = name;
      update(lines);
    },
    note: (text) => {
      fixedNote = text;
      update(lines);
    },
    destroy: () => {
      watcher.disconnect();
      forget();
      view?.destroy();
      root.remove();
    },
  };
}

function nearest(places, x) {
  let best = 0;
  places.forEach((place, at) => {
    if (Math.abs(place - x) < Math.abs(places[best] - x)) best = at;
  });
  return best;
}
