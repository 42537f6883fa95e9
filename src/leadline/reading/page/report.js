// Draws the charts when they come into view and answers the buttons.
// All data stands in the page, in the block "leadline-data"; nothing is ever fetched.
"use strict";
(() => {
  const root = document.documentElement;
  const page = JSON.parse(document.getElementById("leadline-data").textContent);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const press = (button, on) => button.setAttribute("aria-pressed", String(on));
  const pressed = (button) => button.getAttribute("aria-pressed") === "true";
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse)").matches;
  const STEPS = Array.from({ length: 30 }, (_, at) => [1, 2, 5][at % 3] * 10 ** Math.floor(at / 3));
  let relative = false;
  let printing = false;

  // ---- theme -------------------------------------------------------------------------------
  const theme = () =>
    printing ? "light" : root.dataset.theme || (systemDark.matches ? "dark" : "light");
  const hue = (colour) => (theme() === "dark" && page.dark[colour]) || colour;
  // A colour with the two digits of its opacity behind it.
  const wash = (colour) => hue(colour.slice(0, 7)) + colour.slice(7);

  // ---- charts ------------------------------------------------------------------------------
  const charts = page.charts.map((chart) => ({
    ...chart,
    card: document.getElementById(chart.id),
    plot: document.querySelector(`#${chart.id} .plot`),
    drawn: false,
  }));
  const byPlot = new Map(charts.map((chart) => [chart.plot, chart]));

  function shown(chart) {
    const on = (kind) =>
      new Set(all(`[data-${kind}]`, chart.card).filter(pressed).map((b) => b.dataset[kind]));
    const series = on("series");
    const statistics = on("statistic");
    const choice = chart.card.querySelector("[data-statistic]") !== null;
    return (trace) =>
      series.has(String(trace.meta.series)) && (!choice || statistics.has(trace.meta.statistic));
  }

  // Curves over training steps have no depth to be divided by.
  const byShare = (chart) => relative && chart.across !== "step";

  function traces(chart) {
    const visible = shown(chart);
    return chart.figure.data.map((trace) => ({
      ...trace,
      visible: visible(trace),
      x: byShare(chart) ? trace.x.map((layer) => layer / trace.meta.depth) : trace.x,
      line: trace.line && { ...trace.line, color: hue(trace.line.color) },
      marker: { ...trace.marker, color: hue(trace.marker.color) },
      ...(trace.fillcolor && { fillcolor: wash(trace.fillcolor) }),
      ...(trace.error_y && { error_y: { ...trace.error_y, color: hue(trace.error_y.color) } }),
    }));
  }

  // A line that varies by less than one percent is flat, and shall look flat.
  function flatRange(values) {
    if (!values.length) return null;
    const low = Math.min(...values);
    const high = Math.max(...values);
    const size = Math.max(Math.abs(low), Math.abs(high));
    if (high - low > 0.01 * size) return null;
    const middle = (low + high) / 2;
    return [middle - (0.05 * size || 1), middle + (0.05 * size || 1)];
  }

  function layout(chart, data) {
    const colours = page.themes[theme()];
    const result = structuredClone(chart.figure.layout);
    const narrow = chart.plot.clientWidth < 560;
    const log = chart.scale === "log";
    const heights = data.filter((t) => t.visible && !t.meta.edge).flatMap((t) => t.y);
    const [floor, ceiling] = chart.limits || [-Infinity, Infinity];
    const numbers = heights.filter(
      (y) => y !== null && (!log || y > 0) && y >= floor && y <= ceiling);
    const flat = chart.limits || flatRange(numbers);
    const factor = Math.max(...numbers) / Math.min(...numbers);
    const plain = Math.min(...numbers) > 1e-4 && Math.max(...numbers) < 1e5;
    const panels = chart.panels.length;
    chart.plot.style.setProperty("--rows", narrow ? panels : 1);
    for (let panel = 0; panel < panels; panel++) {
      const name = panel ? String(panel + 1) : "";
      const gap = narrow ? 0.15 : 0.07;
      const size = (1 - gap * (panels - 1)) / panels;
      const from = panel * (size + gap);
      const x = result[`xaxis${name}`];
      const y = result[`yaxis${name}`];
      const digits = chart.across === "step" ? 50 : 30; // pixels for a number on the axis
      const room = (chart.plot.clientWidth - 70) / (narrow ? 1 : panels) / digits;
      x.dtick = STEPS.find((step) => (x.range[1] - x.range[0]) / step <= room);
      x.domain = narrow ? [0, 1] : [from, from + size];
      y.domain = narrow ? [1 - from - size, 1 - from] : [0, 1];
      y.type = chart.scale;
      // Over few decades every tick gets its whole number, not the digit alone.
      if (log && factor < 2e3) y.tickformat = plain ? ".3~r" : ".3~g";
      if (log && factor > 5 && factor < 2e3) y.dtick = "D2";
      y.showticklabels = narrow || panel === 0;
      if (flat) y.range = log ? flat.map(Math.log10) : flat;
      if (byShare(chart)) {
        delete x.dtick;
        x.range = [-0.03, 1.03];
        x.tickformat = ".1f";
        x.title.text = x.title.text.replace("layer", "layer / depth");
      }
      for (const axis of [x, y]) {
        Object.assign(axis, { gridcolor: colours.grid, linecolor: colours.axis, zerolinecolor: colours.axis });
      }
    }
    if (printing) {
      result.width = chart.plot.clientWidth;
      result.height = chart.plot.clientHeight;
    }
    result.showlegend = false;
    result.margin.t = touch ? 10 : 26; // room for the buttons of the chart
    result.modebar = { bgcolor: "rgba(0,0,0,0)", color: colours.axis, activecolor: colours.ink };
    result.dragmode = touch ? false : "zoom";
    result.font = { ...result.font, color: colours.ink };
    result.hoverlabel = { ...result.hoverlabel, bgcolor: colours.card, bordercolor: colours.axis,
      font: { color: colours.ink, size: 13 } };
    const lost = heights.filter((y) => y !== null && log && y <= 0).length;
    const note = chart.card.querySelector(".lost");
    note.hidden = !lost;
    note.textContent = `${lost} value${lost === 1 ? " is" : "s are"} zero or negative and cannot stand on a logarithmic scale; switch to linear to see ${lost === 1 ? "it" : "them"}.`;
    return result;
  }

  function draw(chart) {
    const data = traces(chart);
    Plotly.react(chart.plot, data, layout(chart, data), {
      responsive: true,
      displaylogo: false,
      displayModeBar: touch ? false : "hover",
      modeBarButtons: [["toImage", "resetScale2d"]],
      toImageButtonOptions: { format: "svg", filename: chart.id },
    });
    chart.plot.classList.remove("waiting");
    chart.drawn = true;
  }

  const redraw = (which = charts) => which.filter((chart) => chart.drawn).forEach(draw);

  function setScale(chart, scale) {
    const button = chart.card.querySelector(`[data-scale="${scale}"]`);
    if (button.disabled) return;
    chart.scale = scale;
    all("[data-scale]", chart.card).forEach((b) => press(b, b === button));
    redraw([chart]);
  }

  // ---- the table of numbers, built when it is opened ------------------------------------------
  function cell(row, kind, text, number = true) {
    const made = document.createElement(kind);
    made.textContent = text;
    if (number) made.className = "number";
    row.append(made);
    return made;
  }

  function fillTable(chart, holder) {
    if (holder.childElementCount) return;
    const lines = chart.figure.data.filter((trace) => !trace.meta.edge);
    const layers = [...new Set(lines.flatMap((trace) => trace.x))].sort((a, b) => a - b);
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    cell(head, "th", chart.across || "layer").scope = "col";
    lines.forEach((trace) => (cell(head, "th", trace.meta.heading).scope = "col"));
    const body = table.createTBody();
    for (const layer of layers) {
      const row = body.insertRow();
      cell(row, "th", layer).scope = "row";
      for (const trace of lines) {
        const at = trace.x.indexOf(layer);
        cell(row, "td", at < 0 ? "–" : trace.customdata[at][1]);
      }
    }
    holder.append(table);
  }

  // ---- downloads ---------------------------------------------------------------------------
  function download(name, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  function asCsv() {
    const quote = (value) => (/[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
    const columns = ["quantity", "statistic", "stack", "point", "sublayer"];
    const curves = page.records.some((record) => record.curves.length);
    const rows = [["record", ...columns, "layer", "value", ...(curves ? ["run", "step"] : [])]];
    page.records.forEach((record, index) => {
      for (const line of record.curves) {
        line.steps.forEach((step, at) => {
          rows.push([page.names[index], line.quantity, "value", "", "", "", "", line.values[at] ?? "NaN", line.run, step]);
        });
      }
      for (const line of record.series) {
        line.layers.forEach((layer, at) => {
          rows.push([page.names[index], ...columns.map((c) => line[c] ?? ""), layer, line.values[at] ?? "NaN", ...(curves ? ["", ""] : [])]);
        });
      }
    });
    return rows.map((row) => row.map((value) => quote(String(value))).join(",")).join("\r\n") + "\r\n";
  }

  const downloads = {
    json: () => download(`${page.file}.json`, "application/json",
      JSON.stringify(page.records.length === 1 ? page.records[0] : page.records, null, 1)),
    csv: () => download(`${page.file}.csv`, "text/csv", asCsv()),
  };

  // ---- buttons -----------------------------------------------------------------------------
  function setTheme(name) {
    root.dataset.theme = name;
    try { localStorage.setItem("leadline-theme", name); } catch { /* kept for this visit only */ }
    redraw();
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const { dataset } = button;
    const card = button.closest(".chart");
    const chart = card && charts.find((one) => one.card === card);
    if (dataset.action === "theme") setTheme(theme() === "dark" ? "light" : "dark");
    else if (dataset.download) downloads[dataset.download]();
    else if (chart && dataset.scale) setScale(chart, dataset.scale);
    else if (chart) {
      press(button, !pressed(button));
      redraw([chart]);
    } else if (dataset.scaleAll) {
      all("[data-scale-all]").forEach((b) => press(b, b === button));
      charts.forEach((one) => setScale(one, dataset.scaleAll === "suited" ? one.suited : dataset.scaleAll));
    } else if (dataset.depth) {
      relative = dataset.depth === "relative";
      all("[data-depth]").forEach((b) => press(b, b === button));
      redraw();
    } else if (dataset.statisticAll) {
      press(button, !pressed(button));
      for (const one of charts) {
        const twin = one.card.querySelector(`[data-statistic="${CSS.escape(dataset.statisticAll)}"]`);
        if (twin) press(twin, pressed(button));
      }
      redraw();
    }
  });

  all("details.table").forEach((details) =>
    details.addEventListener("toggle", () => {
      const chart = charts.find((one) => one.card === details.closest(".chart"));
      if (details.open) fillTable(chart, details.querySelector(".numbers"));
    }));

  // ---- when to draw ------------------------------------------------------------------------
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      watch.unobserve(entry.target);
      const chart = byPlot.get(entry.target);
      if (!chart.drawn) draw(chart);
    }
  }, { rootMargin: "400px" });
  charts.forEach((chart) => watch.observe(chart.plot));

  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    redraw(charts.filter((chart) => chart.panels.length > 1));
  });
  systemDark.addEventListener("change", () => redraw());
  addEventListener("beforeprint", () => {
    printing = true;
    root.classList.add("printing");
    charts.forEach(draw);
  });
  addEventListener("afterprint", () => {
    printing = false;
    root.classList.remove("printing");
    redraw();
  });
})();
