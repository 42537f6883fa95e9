// Draws the charts when they come into view and answers the buttons.
// All data stands in the page, in the block "leadline-data"; nothing is ever fetched. A chart names
// its lines; their numbers are read from the records, where they stand once.
"use strict";
(() => {
  const root = document.documentElement;
  const page = JSON.parse(document.getElementById("leadline-data").textContent);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const press = (button, on) => button.setAttribute("aria-pressed", String(on));
  const pressed = (button) => button.getAttribute("aria-pressed") === "true";
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const finite = Number.isFinite;
  let relative = false;
  let printing = false;

  // ---- theme and numbers -------------------------------------------------------------------
  const theme = () =>
    printing ? "light" : root.dataset.theme || (systemDark.matches ? "dark" : "light");
  const hue = (colour) => (theme() === "dark" && page.dark[colour]) || colour;
  // JSON has no NaN and no infinity: NaN is null, an infinity is a word.
  const decode = (value) => (value === null ? NaN : Number(value));
  const raised = (power) => String(power).replace(/./g, (sign) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(sign)]);

  function number(value, digits = 4) {
    if (Number.isNaN(value)) return "NaN";
    const sign = value < 0 ? "−" : "";
    if (!finite(value)) return `${sign}∞`;
    if (value === 0) return "0";
    const [mantissa, power] = Math.abs(value).toExponential(digits - 1).split("e").map(Number);
    if (power >= -3 && power < 5) return sign + (mantissa * 10 ** power).toFixed(Math.max(0, digits - 1 - power));
    return `${sign}${mantissa.toFixed(digits - 1)}×10${raised(power)}`;
  }

  function tickText(value) {
    const size = Math.abs(value);
    if (value === 0 || (size >= 1e-3 && size < 1e5)) return String(Number(value.toPrecision(6))).replace("-", "−");
    const [mantissa, power] = value.toExponential(3).split("e").map(Number);
    const ten = `10${raised(power)}`;
    return (mantissa === 1 ? ten : `${mantissa}×${ten}`).replace("-", "−");
  }

  // Round numbers between two ends; on a logarithmic axis powers of ten, or 1, 2, 5 of few decades.
  function ticks(low, high, log, most) {
    const round = (whole) => {
      const raw = (high - low) / most;
      const power = 10 ** Math.floor(Math.log10(raw));
      let step = power * [1, 2, 2.5, 5, 10].find((factor) => power * factor >= raw * (1 - 1e-9));
      if (whole) step = Math.max(1, Math.round(step) === step ? step : Math.ceil(step));
      const found = [];
      for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(k * step);
      return found;
    };
    if (!log) return round(most < 0 ? false : log === null);
    const decades = Math.log10(high / low);
    if (decades < 1) return round(false).filter((tick) => tick > 0);
    const step = Math.max(1, Math.ceil(decades / most));
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      for (const factor of decades < 3 ? [1, 2, 5] : [1]) {
        const tick = factor * 10 ** power;
        if (tick >= low && tick <= high && (power % step === 0 || decades < 3)) found.push(tick);
      }
    }
    return found;
  }

  // ---- charts ------------------------------------------------------------------------------
  const charts = page.charts.map((chart) => ({
    ...chart,
    suited: chart.scale,
    card: document.getElementById(chart.id),
    plot: document.querySelector(`#${chart.id} .plot`),
    tip: document.querySelector(`#${chart.id} .tip`),
    views: [],
    drawn: false,
  }));
  const byPlot = new Map(charts.map((chart) => [chart.plot, chart]));
  charts.forEach((chart) => (chart.plot.chart = chart));

  // The module that stands at a layer of a stack: that of the block, or of the write of a role.
  const modules = new Map();
  function modulePath(at, line, layer) {
    if (layer === 0 && line.point === "stream") return "what enters the first block";
    if (!modules.has(at)) {
      const paths = new Map();
      for (const block of page.records[at].anatomy.blocks) {
        const place = (point, sublayer) => JSON.stringify([block.stack, block.layer, point, sublayer]);
        paths.set(place("stream", null), block.module).set(place("block", null), block.module);
        (block.sublayers || []).forEach((write, index) => {
          paths.set(place(write.role, index + 1), write.module);
          if (!paths.has(place(write.role, null))) paths.set(place(write.role, null), write.module);
        });
      }
      modules.set(at, paths);
    }
    const find = (sublayer) => modules.get(at).get(JSON.stringify([line.stack, layer, line.point, sublayer]));
    return find(line.sublayer ?? null) || find(null) || "";
  }

  // A chart's lines with their numbers, read when it is first drawn.
  function linesOf(chart) {
    chart.read ??= chart.lines.map((line) => {
      const held = line.from ? page.records[line.from[0]][line.from[1]][line.from[2]] : line;
      return {
        ...chart.rows[line.series],
        ...line,
        dash: line.dash || chart.rows[line.series].dash,
        place: held,
        x: held.layers || held.steps || held.x,
        values: held.values.map(decode),
      };
    });
    return chart.read;
  }

  function visibleLines(chart) {
    const on = (kind) =>
      new Set(all(`[data-${kind}]`, chart.card).filter(pressed).map((b) => b.dataset[kind]));
    const series = on("series");
    const statistics = on("statistic");
    const choice = chart.card.querySelector("[data-statistic]") !== null;
    return linesOf(chart).filter((line) =>
      series.has(String(line.series)) && (!choice || statistics.has(line.statistic)));
  }

  // Curves over training steps have no depth to be divided by.
  const byShare = (chart) => relative && chart.across === "layer";
  const across = (chart, line, at) => (byShare(chart) ? line.x[at] / line.depth : line.x[at]);
  const stands = (chart, value) => finite(value) && (chart.scale !== "log" || value > 0);

  // The ends of the vertical axis. A line that varies by less than one percent shall look flat.
  function heights(chart, lines) {
    const [floor, ceiling] = chart.limits || [-Infinity, Infinity];
    if (chart.limits) return [floor, ceiling];
    let [low, high] = [Infinity, -Infinity];
    for (const line of lines) {
      line.values.forEach((value, at) => {
        if (!stands(chart, value)) return;
        low = Math.min(low, value - (line.below?.[at] || 0));
        high = Math.max(high, value + (line.above?.[at] || 0));
      });
    }
    if (low > high) return chart.scale === "log" ? [0.1, 1] : [0, 1];
    const size = Math.max(Math.abs(low), Math.abs(high));
    if (high - low <= 0.01 * size) return [low - (0.05 * size || 1), high + (0.05 * size || 1)];
    if (chart.scale === "log" && low > 0) {
      const room = Math.max((high / low) ** 0.06, 1.01);
      return [low / room, high * room];
    }
    return [low - 0.06 * (high - low), high + 0.06 * (high - low)];
  }

  const SHAPES = {
    circle: (c, x, y, r) => c.arc(x, y, r, 0, 7),
    square: (c, x, y, r) => c.rect(x - r, y - r, 2 * r, 2 * r),
    diamond: (c, x, y, r) => polygon(c, [[x, y - 1.4 * r], [x + 1.4 * r, y], [x, y + 1.4 * r], [x - 1.4 * r, y]]),
    "triangle-up": (c, x, y, r) => polygon(c, [[x, y - 1.3 * r], [x + 1.3 * r, y + r], [x - 1.3 * r, y + r]]),
    "triangle-down": (c, x, y, r) => polygon(c, [[x, y + 1.3 * r], [x + 1.3 * r, y - r], [x - 1.3 * r, y - r]]),
  };
  function polygon(context, points) {
    points.forEach(([x, y], at) => (at ? context.lineTo(x, y) : context.moveTo(x, y)));
    context.closePath();
  }

  // Where a value stands in a panel; what is not finite has a cross on the edge.
  function spot(chart, view, line, at, canvas = false) {
    const value = line.values[at];
    const x = view.valToPos(across(chart, line, at), "x", canvas);
    if (stands(chart, value)) return [x, view.valToPos(value, "y", canvas)];
    if (finite(value)) return null;
    const { top, height } = canvas ? view.bbox : { top: 0, height: view.over.clientHeight };
    return [x, top + height * (value === Infinity ? 0.03 : 0.97)];
  }

  // Markers, intervals and areas, which uPlot does not draw by itself.
  function drawMarks(chart, view, line, before) {
    const { ctx: c, bbox } = view;
    const scale = devicePixelRatio;
    const colour = hue(line.colour);
    c.save();
    c.beginPath();
    c.rect(bbox.left - 6 * scale, bbox.top - 6 * scale, bbox.width + 12 * scale, bbox.height + 12 * scale);
    c.clip();
    c.lineWidth = 1.5 * scale;
    c.strokeStyle = c.fillStyle = colour;
    const spots = line.values.map((_, at) => spot(chart, view, line, at, true));
    if (line.band && before?.series === line.series) {
      const back = before.values.map((_, at) => spot(chart, view, before, at, true));
      c.globalAlpha = 0.17;
      c.beginPath();
      polygon(c, [...spots, ...back.reverse()].filter(Boolean));
      c.fill();
      c.globalAlpha = 1;
    }
    const shape = SHAPES[(line.symbol || "circle").replace("-open", "")] || SHAPES.circle;
    const every = Math.ceil(spots.length / 33);
    spots.forEach((place, at) => {
      if (!place) return;
      const [x, y] = place;
      if (!finite(line.values[at])) {
        const r = 4 * scale;
        c.beginPath();
        c.moveTo(x - r, y - r); c.lineTo(x + r, y + r);
        c.moveTo(x - r, y + r); c.lineTo(x + r, y - r);
        c.lineWidth = 2.2 * scale;
        c.stroke();
        return;
      }
      if (line.above?.[at] || line.below?.[at]) {
        const ends = [line.values[at] + line.above[at], line.values[at] - line.below[at]]
          .map((end) => view.valToPos(end, "y", true));
        c.lineWidth = 1.5 * scale;
        c.beginPath();
        for (const end of ends) { c.moveTo(x - 4 * scale, end); c.lineTo(x + 4 * scale, end); }
        c.moveTo(x, ends[0]); c.lineTo(x, ends[1]);
        c.stroke();
      }
      if ((line.symbol && at % every === 0) || spots.length === 1) {
        c.beginPath();
        shape(c, x, y, 3 * scale);
        if (line.symbol?.endsWith("-open")) {
          c.fillStyle = page.themes[theme()].card;
          c.fill();
          c.stroke();
          c.fillStyle = colour;
        } else c.fill();
      }
    });
    c.restore();
  }

  function panelData(chart, lines) {
    const places = [...new Set(lines.flatMap((line) => line.x.map((_, at) => across(chart, line, at))))]
      .sort((a, b) => a - b);
    const index = new Map(places.map((x, at) => [x, at]));
    // For uPlot, null is a gap and undefined is no value here.
    const columns = lines.map((line) => {
      const column = new Array(places.length).fill(undefined);
      line.values.forEach((value, at) => {
        column[index.get(across(chart, line, at))] = stands(chart, value) ? value : null;
      });
      return column;
    });
    return [places, ...columns];
  }

  function draw(chart) {
    if (!chart.plot.clientWidth) return;
    hideTip(chart);
    chart.views.forEach((view) => view.destroy());
    chart.plot.replaceChildren();
    chart.shown = visibleLines(chart);
    const colours = page.themes[theme()];
    const narrow = chart.plot.clientWidth < 560;
    const count = chart.panels.length;
    chart.plot.style.setProperty("--rows", narrow ? count : 1);
    chart.plot.style.setProperty("--across", narrow ? 1 : count);
    const log = chart.scale === "log";
    const font = `12px ${getComputedStyle(document.body).fontFamily}`;
    const y = heights(chart, chart.shown);
    chart.range = { y, x: [] };
    chart.zoom = { y, x: [] };
    chart.views = chart.panels.map((title, panel) => {
      const holder = document.createElement("div");
      chart.plot.append(holder);
      const lines = chart.shown.filter((line) => line.panel === panel);
      const data = panelData(chart, lines);
      const [first, last] = [data[0][0] ?? 0, data[0].at(-1) ?? 1];
      const room = 0.03 * (last - first) || 0.5;
      chart.range.x[panel] = chart.zoom.x[panel] = [first - room, last + room];
      const axis = { stroke: colours.ink, font, labelFont: font, grid: { stroke: colours.grid, width: 1 },
        ticks: { stroke: colours.axis, size: 4, width: 1 } };
      const height = chart.plot.clientHeight / (narrow ? count : 1);
      const labels = (view, low, high) => ticks(low, high, log, Math.max(3, height / 55));
      const word = byShare(chart) ? "layer / depth" : chart.across;
      const view = new uPlot({
        width: holder.clientWidth,
        height,
        padding: [10, 12, 0, 0],
        legend: { show: false },
        cursor: { x: false, y: false, points: { show: false }, drag: { x: true, y: true, uni: 20, setScale: false } },
        scales: {
          x: { time: false, range: () => chart.zoom.x[panel] },
          y: { distr: log ? 3 : 1, range: () => chart.zoom.y },
        },
        axes: [
          { ...axis, label: [title, word].filter(Boolean).join(" "), labelSize: 20, size: 32,
            splits: (u, _, low, high) => ticks(low, high, byShare(chart) ? false : null,
              Math.max(2, holder.clientWidth / (chart.across === "step" ? 70 : 42))),
            values: (u, splits) => splits.map(tickText) },
          { ...axis, size: (u, texts) => 14 + 7 * Math.max(1, ...(texts || []).map((t) => t.length)),
            splits: (u, _, low, high) => labels(u, low, high), filter: (u, splits) => splits,
            values: (u, splits) => splits.map(tickText) },
        ],
        series: [{}, ...lines.map((line) => ({
          stroke: hue(line.colour), width: line.width, points: { show: false },
          dash: page.dashes[line.dash].length ? page.dashes[line.dash] : undefined,
        }))],
        hooks: {
          drawSeries: [(u, at) => drawMarks(chart, u, lines[at - 1], lines[at - 2])],
          setCursor: [(u) => hover(chart, u, lines)],
          setSelect: [(u) => zoom(chart, panel, u)],
        },
      }, data, holder);
      view.over.addEventListener("dblclick", () => resetZoom(chart));
      view.over.addEventListener("mouseleave", () => hideTip(chart));
      return view;
    });
    chart.card.querySelector("[data-action=reset]").hidden = true;
    const lost = log ? chart.shown.flatMap((line) => line.values).filter((v) => finite(v) && v <= 0).length : 0;
    const note = chart.card.querySelector(".lost");
    note.hidden = !lost;
    note.textContent = `${lost} value${lost === 1 ? " is" : "s are"} zero or negative and cannot stand on a logarithmic scale; switch to linear to see ${lost === 1 ? "it" : "them"}.`;
    chart.plot.classList.remove("waiting");
    chart.drawn = true;
  }

  const redraw = (which = charts) => which.filter((chart) => chart.drawn).forEach((chart) => {
    if (chart.plot.clientWidth) draw(chart);
    else wait(chart); // inside a folded part: drawn again when it is opened
  });

  // ---- zoom --------------------------------------------------------------------------------
  function applyZoom(chart) {
    chart.views.forEach((view, panel) => view.batch(() => {
      const [[low, high], [floor, top]] = [chart.zoom.x[panel], chart.zoom.y];
      view.setScale("x", { min: low, max: high });
      view.setScale("y", { min: floor, max: top });
    }));
  }

  function zoom(chart, panel, view) {
    const { left, top, width, height } = view.select;
    if (!width && !height) return;
    if (width > 4) chart.zoom.x[panel] = [left, left + width].map((at) => view.posToVal(at, "x"));
    if (height > 4 && height < view.over.clientHeight - 1) {
      chart.zoom.y = [top + height, top].map((at) => view.posToVal(at, "y"));
    }
    view.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    chart.card.querySelector("[data-action=reset]").hidden = false;
    applyZoom(chart);
  }

  function resetZoom(chart) {
    chart.zoom = { y: chart.range.y, x: [...chart.range.x] };
    chart.card.querySelector("[data-action=reset]").hidden = true;
    applyZoom(chart);
  }

  // ---- what stands under the pointer --------------------------------------------------------
  function hideTip(chart) {
    chart.tip.hidden = true;
    chart.point = null;
  }

  function hover(chart, view, lines) {
    const { left, top } = view.cursor;
    if (!(left >= 0) || !(top >= 0)) return;
    let best = null;
    for (const line of lines) {
      for (let at = 0; at < line.x.length; at++) {
        const place = spot(chart, view, line, at);
        const apart = place ? Math.hypot(place[0] - left, place[1] - top) : Infinity;
        if (apart < 60 && apart < (best?.apart ?? Infinity)) best = { apart, line, at };
      }
    }
    if (best) showTip(chart, view, best.line, best.at);
    else hideTip(chart);
  }

  function showTip(chart, view, line, at) {
    const [x, y] = spot(chart, view, line, at);
    const { place } = line;
    const head = document.createElement("b");
    const where = [chart.panels.length > 1 ? chart.panels[line.panel] : "", chart.across, line.x[at]]
      .filter((word) => word !== "").join(" ");
    head.textContent = place.point ? `${where}, ${place.point}` : where;
    const value = document.createElement("b");
    value.textContent = number(line.values[at]);
    const row = document.createElement("span");
    const statistic = (line.statistic === "value" ? "" : line.statistic.replaceAll("_", " ").replace("first", "first token"));
    if (place.point) row.append(`${statistic} `, ...chart.card.querySelector(".symbol").cloneNode(true).childNodes);
    else row.append(line.heading);
    row.append(` ${line.words} `, value, chart.unit ? ` ${chart.unit}` : "");
    const rest = [
      place.point && page.names.length > 1 ? page.names[line.record] : "",
      line.notes?.[at] ?? (place.point ? modulePath(line.record, place, line.x[at]) : ""),
    ].filter(Boolean).map((text) => Object.assign(document.createElement("span"), { textContent: text }));
    chart.tip.replaceChildren(head, row, ...rest);
    chart.tip.style.setProperty("--c", hue(line.colour));
    chart.tip.hidden = false;
    const stage = chart.plot.parentElement.getBoundingClientRect();
    const over = view.over.getBoundingClientRect();
    const point = [over.left - stage.left + x, over.top - stage.top + y];
    const width = chart.tip.offsetWidth;
    const aside = point[0] + 14 + width <= stage.width ? point[0] + 14 : point[0] - 14 - width;
    chart.tip.style.left = `${Math.max(0, Math.min(aside, stage.width - width))}px`;
    chart.tip.style.top = `${Math.max(0, point[1] - chart.tip.offsetHeight - 8)}px`;
    chart.point = { line, at };
  }

  // Left and right go along a line, up and down from line to line.
  function step(chart, event) {
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (event.key === "Escape") return hideTip(chart);
    if (!moves[event.key] || !chart.shown.length) return;
    event.preventDefault();
    const [aside, along] = moves[event.key];
    let { line, at } = chart.point || { line: chart.shown[0], at: -1 };
    const count = chart.shown.length;
    line = chart.shown[(chart.shown.indexOf(line) + aside + count) % count];
    do at = Math.max(0, Math.min(line.x.length - 1, at + along));
    while (!spot(chart, chart.views[line.panel], line, at) && along && at > 0 && at < line.x.length - 1);
    if (spot(chart, chart.views[line.panel], line, at)) showTip(chart, chart.views[line.panel], line, at);
  }

  // ---- the chart as a picture ----------------------------------------------------------------
  function save(chart) {
    const scale = devicePixelRatio;
    const place = chart.plot.getBoundingClientRect();
    const picture = document.createElement("canvas");
    picture.width = place.width * scale;
    picture.height = (place.height + 34) * scale;
    const c = picture.getContext("2d");
    const colours = page.themes[theme()];
    c.fillStyle = colours.card;
    c.fillRect(0, 0, picture.width, picture.height);
    c.fillStyle = colours.ink;
    c.font = `600 ${15 * scale}px ${getComputedStyle(document.body).fontFamily}`;
    c.fillText(chart.card.querySelector("h4").textContent, 10 * scale, 22 * scale);
    for (const view of chart.views) {
      const at = view.ctx.canvas.getBoundingClientRect();
      c.drawImage(view.ctx.canvas, (at.left - place.left) * scale, (at.top - place.top + 34) * scale);
    }
    picture.toBlob((blob) => download(`${chart.id}.png`, "image/png", blob));
  }

  function setScale(chart, scale) {
    const button = chart.card.querySelector(`[data-scale="${scale}"]`);
    if (button.disabled) return;
    chart.scale = scale;
    all("[data-scale]", chart.card).forEach((b) => press(b, b === button));
    redraw([chart]);
  }

  // ---- the table of numbers, built when it is opened ------------------------------------------
  function cell(row, kind, text, numeric = true) {
    const made = document.createElement(kind);
    made.textContent = text;
    if (numeric) made.className = "number";
    row.append(made);
    return made;
  }

  function fillTable(chart, holder) {
    if (holder.childElementCount) return;
    const lines = linesOf(chart);
    const layers = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    cell(head, "th", chart.across).scope = "col";
    lines.forEach((line) => (cell(head, "th", line.heading).scope = "col"));
    const places = lines.map((line) => new Map(line.x.map((x, at) => [x, at])));
    const body = table.createTBody();
    for (const layer of layers) {
      const row = body.insertRow();
      cell(row, "th", layer).scope = "row";
      lines.forEach((line, index) => {
        const at = places[index].get(layer);
        cell(row, "td", at === undefined ? "–" : number(line.values[at]));
      });
    }
    holder.append(table);
  }

  // ---- downloads ---------------------------------------------------------------------------
  function download(name, type, content) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([content], { type }));
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

  // ---- buttons and folded parts --------------------------------------------------------------
  function setTheme(name) {
    root.dataset.theme = name;
    try { localStorage.setItem("leadline-theme", name); } catch { /* kept for this visit only */ }
    redraw();
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (link) return reveal(link.hash);
    const button = event.target.closest("button");
    if (!button) return;
    const { dataset } = button;
    const card = button.closest(".chart");
    const chart = card && charts.find((one) => one.card === card);
    if (dataset.action === "theme") setTheme(theme() === "dark" ? "light" : "dark");
    else if (dataset.download) downloads[dataset.download]();
    else if (dataset.action === "save") save(chart);
    else if (dataset.action === "reset") resetZoom(chart);
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

  // A link into a folded part opens it.
  function reveal(hash) {
    const target = hash.length > 1 && document.getElementById(hash.slice(1));
    for (let at = target && target.closest("details"); at; at = at.parentElement.closest("details")) at.open = true;
  }
  addEventListener("hashchange", () => reveal(location.hash));
  if (location.hash) {
    reveal(location.hash);
    document.getElementById(location.hash.slice(1))?.scrollIntoView();
  }

  all("details.table").forEach((details) =>
    details.addEventListener("toggle", () => {
      const chart = charts.find((one) => one.card === details.closest(".chart"));
      if (details.open) fillTable(chart, details.querySelector(".numbers"));
    }));
  charts.forEach((chart) => {
    chart.plot.addEventListener("keydown", (event) => step(chart, event));
    chart.plot.addEventListener("blur", () => hideTip(chart));
  });

  // ---- layers by steps: which cell stands under the pointer ---------------------------------------
  all(".heat .field").forEach((field) => {
    const out = field.closest(".heat").querySelector(".readout");
    const names = field.dataset.names.split("|");
    const [first, last] = field.dataset.steps.split(",").map(Number);
    const [, , columns, high] = field.querySelector("svg").getAttribute("viewBox").split(" ").map(Number);
    const paths = all("path[class^=h]", field);
    let here = null;
    function tell(row, column) {
      here = [row, column];
      const at = [first, last].map((_, end) => Math.floor(first + ((column + end) * (last + 1 - first)) / columns) - end);
      const point = new DOMPoint(column + 0.5, 2 * row + 1);
      const path = paths.find((one) => one.isPointInStroke(point));
      const what = path ? path.querySelector("title").textContent : "not read";
      const name = /^\d+$/.test(names[row]) ? `layer ${names[row]}` : names[row];
      const steps = at[1] > at[0] ? `steps ${at[0]} to ${at[1]}` : `step ${at[0]}`;
      out.textContent = `${name}, ${steps}: ${what}`;
    }
    field.addEventListener("pointermove", (event) => {
      const box = field.getBoundingClientRect();
      const place = (share, count) => Math.max(0, Math.min(count - 1, Math.floor(share * count)));
      tell(place((event.clientY - box.top) / box.height, high / 2), place((event.clientX - box.left) / box.width, columns));
    });
    field.addEventListener("pointerleave", () => (out.textContent = ""));
    field.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
      if (!moves[event.key]) return;
      event.preventDefault();
      const [down, right] = moves[event.key];
      const [row, column] = here || [0, columns - 1 - right];
      tell(Math.max(0, Math.min(high / 2 - 1, row + down)), Math.max(0, Math.min(columns - 1, column + right)));
    });
  });

  all("details.layered").forEach((details) => details.addEventListener("toggle", () => {
    const holder = details.querySelector(".numbers");
    if (!details.open || holder.childElementCount) return;
    const { names } = details.closest(".heat").querySelector(".field").dataset;
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    ["layer", "first", "lowest @step", "highest @step", "last"].forEach((word) => (cell(head, "th", word).scope = "col"));
    const body = table.createTBody();
    details.dataset.numbers.split("|").forEach((row, at) => {
      const line = body.insertRow();
      cell(line, "th", names.split("|")[at], false).scope = "row";
      row.split(";").forEach((text) => cell(line, "td", text));
    });
    holder.append(table);
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
  function wait(chart) {
    chart.drawn = false;
    chart.plot.classList.add("waiting");
    watch.observe(chart.plot);
  }
  charts.forEach(wait);

  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    redraw();
  });
  systemDark.addEventListener("change", () => redraw());
  let folded = [];
  addEventListener("beforeprint", () => {
    printing = true;
    root.classList.add("printing");
    folded = all("details.part:not([open])");
    folded.forEach((details) => (details.open = true));
    charts.forEach(draw);
  });
  addEventListener("afterprint", () => {
    printing = false;
    root.classList.remove("printing");
    folded.forEach((details) => (details.open = false));
    redraw();
  });
})();
