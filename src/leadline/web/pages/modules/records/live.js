// A run over its steps, as it is being written: how it is doing, its loss, maps of layers by steps,
// gauges beside their own past, warnings as they come; of a sweep, its map.
import { element, freshId, setText } from "../elements.js";
import { findingCard } from "../findings.js";
import { gaugeTable } from "./gauges.js";
import { sweepMap } from "./sweep.js";

const LOSSES = { "train.loss": { colour: "a" }, "validation.loss": { colour: "b", marker: "circle" } };
const SIGNS = { running: "●", starting: "●", waiting: "●", silent: "◌", died: "◐", closed: "■", gone: "✕" };

// `entry` is what the list says of the record. Returns { again(entry), ended(), destroy() }.
export function liveRun(holder, { api, t, address, charts }, entry) {
  let abort = null;
  let ended = false;
  let state = "starting";
  let maps = [];
  let gauges = [];
  let findings = [];
  let map = null;
  let mapShown = "";
  let sweep = null;

  const sign = element("i", { "aria-hidden": "true" });
  const stateWord = element("span", {});
  const answer = element("p", { class: "run-answer", "aria-live": "polite", text: t("word.loading") });
  const detail = element("p", { class: "soft small" });
  const warnings = element("section", { class: "run-findings", "aria-label": t("run.findings"), "aria-live": "polite" });
  const lossPlace = element("div", { class: "run-loss" });
  const select = element("select", { id: freshId("map"), onchange: () => choose(select.value) });
  const mapPlace = element("div", { class: "run-map-place" });
  const mapPart = element("div", { class: "run-map", hidden: true },
    element("p", { class: "field" }, element("label", { for: select.id, text: t("run.quantity") }), select), mapPlace);
  const key = element("span", { class: "legend" });
  const table = gaugeTable({ t, onChoose: choose });
  const sweepPlace = element("div", { class: "run-sweep" });
  const root = element("div", { class: "follow", "data-state": "starting" },
    element("header", { class: "run-head" }, element("p", { class: "run-state", role: "status" }, sign, stateWord), answer, detail),
    warnings, sweepPlace, element("div", { class: "run-charts" }, lossPlace, mapPart), table.root);
  holder.append(root);
  let loss = null;

  function drawState(word, reason = "") {
    root.dataset.state = word;
    setText(sign, SIGNS[word] || "");
    setText(stateWord, [t.or(`run.state.${word}`, word), reason].filter(Boolean).join(" "));
  }

  const hear = {
    state: (event) => {
      state = event.state;
      drawState(state);
      setText(answer, event.answer.join(" "));
      setText(detail, event.detail);
    },
    loss: (event) => {
      const lines = event.series.filter((one) => one.quantity in LOSSES);
      if (!lines.length) return;
      loss ??= charts.lineChart(lossPlace, { title: t("train.loss"), about: t("train.loss.about"), unit: lines[0].unit, across: t("word.step"), t, tools: [key] });
      const drawn = lines.map((one) => ({ label: t.or(`run.${one.quantity}`, one.label), x: one.steps, values: one.values, ...LOSSES[one.quantity] }));
      loss.update(drawn);
      if (key.children.length === drawn.length || drawn.length < 2) return;
      key.replaceChildren(...drawn.map((line) => element("span", {}, element("i", { class: [line.colour, line.marker].filter(Boolean).join(" ") }), line.label)));
    },
    maps: (event) => {
      maps = event.maps;
      drawMap();
    },
    gauges: (event) => {
      gauges = event.gauges;
      table.update(gauges, new Set(maps.map((one) => one.address)));
      drawMap();
    },
    findings: (event) => {
      findings = event.findings;
      warnings.replaceChildren(...findings.map((finding) => findingCard(finding, t, { heading: "h2" })),
        ...(event.earlier.length ? [element("details", {}, element("summary", { text: t("run.earlier", { n: event.earlier.length }) }),
          ...event.earlier.map((finding) => findingCard(finding, t)))] : []));
      drawMap();
    },
    map: (event) => {
      sweep ??= sweepMap(sweepPlace, { t });
      sweep.update(event.map);
      setText(answer, event.answer.join(" ") || t("sweep.waiting"));
      setText(detail, sweep.progress());
      state = entry.status === "being written" ? "running" : "closed";
      drawState(state);
    },
    error: (event) => {
      ended = true;
      drawState("gone");
      setText(answer, event.reason);
      return true;
    },
    end: (event) => {
      ended = true;
      // The sweep says in words why nothing more comes; how a training ended its state has said.
      if (sweep) {
        state = sweep.complete() ? "closed" : "died";
        drawState(state);
        if (state === "died") setText(detail, event.reason);
      }
      return true;
    },
  };

  // The map that was chosen, or the one that a warning speaks of, or the first of all.
  function drawMap() {
    mapPart.hidden = !maps.length;
    if (!maps.length) return;
    const known = maps.map((one) => one.address);
    if (select.options.length !== known.length || [...select.options].some((one, at) => one.value !== known[at])) {
      select.replaceChildren(...maps.map((one) => element("option", { value: one.address, text: one.label })));
    }
    const wish = address.read().get("map");
    const warned = gauges.find((one) => one.warned && known.includes(one.map))?.map;
    const chosen = known.includes(wish) ? wish : warned || (known.includes(mapShown) ? mapShown : known[0]);
    select.value = chosen;
    table.mark(chosen);
    const one = maps[known.indexOf(chosen)];
    if (mapShown !== chosen) {
      map?.destroy();
      const names = one.address.startsWith("model/");
      map = charts.heatMap(mapPlace, {
        title: one.label, about: t.or(`quantity.${one.quantity}.about`, ""), unit: one.unit, scale: one.scale, t,
        rows: names ? t("word.tensor") : t("word.layer"), columns: t("word.step"),
      });
      map.root.classList.toggle("names", names);
      mapShown = chosen;
    }
    // A column begins at its first whole step; what was not read stays open.
    map.update({
      rows: one.layers,
      columns: one.steps.slice(0, -1).map((step) => Math.ceil(step)),
      values: one.values.map((row, y) => row.map((value, x) => (one.read[y][x] ? value : undefined))),
      marks: findings.filter((finding) => finding.step).map((finding) => ({ column: finding.step, label: t("run.markAt", { name: finding.name, step: finding.step }) })),
    });
  }

  function choose(name) {
    const query = address.read();
    query.set("map", name);
    address.replace(query);
    drawMap();
  }

  function follow() {
    abort?.abort();
    abort = new AbortController();
    ended = false;
    const { signal } = abort;
    api.runEvents(entry.id, (event) => hear[event.event]?.(event) === true, {
      signal,
      onOpen: () => drawState(state),
      onLost: () => drawState("lost"),
    }).catch((error) => {
      if (signal.aborted) return;
      ended = true;
      drawState("gone", error.message);
    });
  }

  follow();
  return {
    again: (next) => {
      entry = next;
      follow();
    },
    ended: () => ended,
    destroy: () => {
      abort.abort();
      loss?.destroy();
      map?.destroy();
      root.remove();
    },
  };
}
