// Training, live: a button for each design, one chart of both losses, gauges while it runs.
import { lineChart } from "./chart.js";
import { element, freshId, setText } from "./elements.js";
import { inFrames } from "./frames.js";
import { numberText } from "./numbers.js";
import { verdictText } from "./play/verdict.js";

const FIELDS = [
  { name: "steps", kind: "integer", default: 200, min: 10, max: 5000 },
  { name: "rate", kind: "number", default: 0.001, min: 0.00001, max: 1 },
  { name: "warmup", kind: "integer", default: 0, min: 0, max: 2000 },
  { name: "every", kind: "integer", default: 10, min: 1, max: 500 },
];

// `designOf(side)` is the design to train; `onGauges(side, step, curves)` gets the curves of a step,
// and (side, null, null) when those of the start are to be shown again. `onVerdict(side, verdict)` gets
// what is found while it trains, and (side, null) when the verdict of the start holds again.
// Returns { root, button(side), stop(side), destroy() }.
export function trainingPanel(sides, { api, t, designOf, onGauges, onVerdict, training }) {
  const state = Object.fromEntries(sides.map((side) => [side, fresh()]));
  const fields = trainingFields(training || FIELDS, t);
  const lines = Object.fromEntries(sides.map((side) => [side, element("p", { class: `run ${side}`, "aria-live": "polite" })]));
  const settings = element("details", { class: "settings" }, element("summary", { text: t("train.settings") }), fields.root);
  const root = element("div", { class: "training" });
  const chart = lineChart(root, {
    title: t("train.loss"), about: t("train.loss.about"), scale: "linear", across: t("word.step"), t, empty: t("train.empty"), tools: [settings],
  });
  chart.root.append(element("div", { class: "runs" }, ...sides.map((side) => lines[side])));
  const buttons = Object.fromEntries(sides.map((side) => [side, buttonsOf(side)]));

  function fresh() {
    return { phase: "idle", job: null, x: [], values: [], last: null, text: "", abort: null };
  }

  function buttonsOf(side) {
    const label = (key) => `${t(key)}, ${t("play.design", { side: side.toUpperCase() })}`;
    const main = element("button", { type: "button", class: "train", onclick: () => press(side) });
    const stop = element("button", { type: "button", text: t("train.stop"), "aria-label": label("train.stop"), hidden: true, onclick: () => halt(side) });
    const back = element("button", { type: "button", text: t("train.back"), "aria-label": label("train.back"), hidden: true, onclick: () => reset(side) });
    const holder = element("span", { class: "train-buttons" }, main, stop, back);
    return { holder, main, stop, back, label };
  }

  function drawButtons(side) {
    const { phase, x } = state[side];
    const { main, stop, back, label } = buttons[side];
    const key = { idle: "train.start", running: "train.pause", paused: "train.continue", starting: "train.starting", ended: "train.start" }[phase];
    setText(main, t(key));
    main.setAttribute("aria-label", label(key));
    main.disabled = phase === "starting";
    stop.hidden = phase !== "running" && phase !== "paused";
    back.hidden = phase !== "ended" || !x.length;
    setText(lines[side], state[side].text);
    lines[side].hidden = !state[side].text;
  }

  function drawLoss() {
    inFrames(chart, () => chart.update(sides.filter((side) => state[side].x.length).map((side) => ({
      label: sides.length > 1 ? `${side.toUpperCase()} ${t("train.lossWord")}` : t("train.lossWord"),
      x: state[side].x, values: state[side].values, colour: side,
    }))));
  }

  function press(side) {
    const run = state[side];
    if (run.phase === "running") return command(side, api.pauseJob, "paused");
    if (run.phase === "paused") return command(side, api.continueJob, "running");
    return start(side);
  }

  async function command(side, ask, phase) {
    const run = state[side];
    try {
      await ask(run.job);
      if (run.phase === "running" || run.phase === "paused") run.phase = phase;
    } catch (error) {
      run.text = error.message;
    }
    drawButtons(side);
  }

  async function start(side) {
    reset(side);
    const run = state[side];
    run.phase = "starting";
    run.text = t("train.waiting", { side: side.toUpperCase() });
    run.abort = new AbortController();
    drawButtons(side);
    try {
      const { job } = await api.train(designOf(side), fields.values());
      run.job = job;
      if (state[side] !== run) return api.stopJob(job); // the design changed before it began
      run.phase = "running";
      drawButtons(side);
      await api.jobEvents(job, (event) => hear(side, run, event), { signal: run.abort.signal });
    } catch (error) {
      if (state[side] !== run || run.abort.signal.aborted) return;
      run.phase = "ended";
      run.text = error.message;
      drawButtons(side);
    }
  }

  function hear(side, run, event) {
    if (state[side] !== run) return true;
    if (event.event === "step") {
      run.x.push(event.step);
      run.values.push(event.loss);
      run.text = t("train.at", { side: side.toUpperCase(), n: event.step, loss: numberText(event.loss) });
      drawLoss();
      inFrames(lines[side], () => drawButtons(side));
    } else if (event.event === "gauges") {
      onGauges(side, event.step, event.curves);
    } else if (event.event === "finding") {
      // With a level it stands on the card as the verdict, and is not said twice.
      run.finding = event.level ? "" : verdictText(event, t);
      if (event.level) onVerdict?.(side, event);
    } else if (event.event === "end" || event.event === "error") {
      run.phase = "ended";
      const reason = event.reason || event.error || "";
      const last = run.x.length ? t("train.at", { side: side.toUpperCase(), n: run.x[run.x.length - 1], loss: numberText(run.values[run.values.length - 1]) }) : "";
      run.text = [last, t.or(`train.reason.${reason}`, reason), run.finding].filter(Boolean).join(" · ");
      drawButtons(side);
      return true;
    }
    return false;
  }

  // Ends a run and keeps what it showed.
  function halt(side) {
    const run = state[side];
    if (run.job && (run.phase === "running" || run.phase === "paused")) {
      api.stopJob(run.job).catch((error) => {
        run.text = error.message;
        drawButtons(side);
      });
    }
  }

  // Ends a run and forgets it: the gauges show the start again.
  function reset(side) {
    const run = state[side];
    if (run.phase === "idle" && !run.x.length && !run.text) return;
    halt(side);
    run.abort?.abort();
    state[side] = fresh();
    onGauges(side, null, null);
    onVerdict?.(side, null);
    drawLoss();
    drawButtons(side);
  }

  sides.forEach(drawButtons);
  return {
    root,
    button: (side) => buttons[side].holder,
    stop: reset,
    destroy: () => {
      sides.forEach((side) => {
        halt(side);
        state[side].abort?.abort();
      });
      chart.destroy();
    },
  };
}

function trainingFields(specs, t) {
  const inputs = new Map();
  const root = element("div", { class: "settings-fields" }, ...specs.map((spec) => {
    const id = freshId("training");
    const numeric = spec.kind === "integer" || spec.kind === "number";
    const input = spec.choices
      ? element("select", { id }, ...spec.choices.map((one) => element("option", {
        value: one.name ?? one, text: one.summary ? `${one.name} · ${one.summary}` : one.name ?? one })))
      : element("input", { id, type: numeric ? "number" : "text", min: spec.min, max: spec.max, step: spec.kind === "integer" ? 1 : "any" });
    input.value = spec.default;
    inputs.set(spec.name, { input, numeric, spec });
    return element("div", { class: "option" }, element("label", { for: id, text: t.or(`training.${spec.name}`, spec.label || spec.name) }), input);
  }));
  return {
    root,
    values: () => Object.fromEntries([...inputs].map(([name, { input, numeric, spec }]) =>
      [name, numeric ? (input.value.trim() === "" ? spec.default : Number(input.value)) : input.value])),
  };
}
