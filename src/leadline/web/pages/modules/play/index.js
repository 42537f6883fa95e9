// The playground: two designs side by side, their verdicts, and their curves over depth.
import { element } from "../elements.js";
import { inFrames } from "../frames.js";
import { trainingPanel } from "../train.js";
import { designCard } from "./card.js";
import { designsOf, differing, queryOf, SIDES, unknownOf } from "./design.js";
import { chartGrid } from "./grid.js";
import { knobTable } from "./knobs.js";
import { presetRow, watchedNames } from "./presets.js";
import { curveRequests } from "./requests.js";

const MERGED = 1200; // milliseconds in which key presses on one knob are one entry of the history

export function mount(holder, context) {
  const { t, api } = context;
  let gone = false;
  let view = null;
  holder.append(element("h1", { class: "unseen", text: t("view.play") }), element("p", { class: "message", text: t("word.loading") }));
  api.knobs().then((spec) => {
    if (gone) return;
    holder.lastChild.remove();
    view = playground(holder, spec, context);
  }).catch((error) => {
    if (!gone) holder.replaceChildren(element("p", { class: "message", role: "alert", text: error.message }));
  });
  return () => {
    gone = true;
    view?.();
  };
}

function playground(holder, spec, context) {
  const { t, api, address } = context;
  const { knobs, quantities, presets, offered } = spec; // `offered`: only on a static site
  const depth = knobs.find((knob) => knob.name === "depth");
  let state = null;
  let shown = null;
  let lastChange = { key: "", time: 0 };
  const results = { a: fresh(), b: fresh() };

  function fresh() {
    return { curves: null, laws: [], verdict: null, trained: null, dim: false, oldLaws: false };
  }

  // ---- what stands on the page ---------------------------------------------------------------
  const training = trainingPanel(SIDES, {
    api, t, training: spec.training,
    designOf: (side) => differing(state[side], knobs),
    onGauges: (side, step, curves) => {
      results[side].trained = curves;
      cards[side].trained(step);
      redraw();
    },
    onVerdict: (side, verdict) => {
      const told = verdict || results[side].verdict;
      if (told) inFrames(`verdict ${side}`, () => cards[side].verdict(told));
    },
  });
  const cards = Object.fromEntries(SIDES.map((side) => [side, designCard(side, {
    t, depth, offered, onDepth: (value, live) => change(side, "depth", value, live),
    buttons: [training.button(side)],
  })]));
  const swap = element("button", { type: "button", text: "⇄", "aria-label": t("play.swap"), title: t("play.swap"), onclick: () => whole({ preset: null, a: state.b, b: state.a }) });
  const copy = element("button", {
    type: "button", class: "small", text: t("play.likeA"), onclick: () => whole({ preset: null, a: state.a, b: { ...state.a } }),
  });
  const head = element("div", { class: "knob-head" },
    element("div", { class: "knob-name" }, swap),
    element("div", { class: "cell a" }, element("span", { class: "letter", text: "A" })),
    element("div", { class: "cell b" }, element("span", { class: "letter", text: "B" }), copy));
  const table = knobTable(knobs.filter((knob) => knob !== depth), SIDES, { t, head, offered, onChange: change });
  const grid = chartGrid(quantities, { t, after: [training.root] });
  const stories = presetRow(presets, { t, quantities, onChoose: (preset) => apply(new URLSearchParams({ preset: preset.id }), "push") });
  const tabs = SIDES.map((side) => element("button", {
    type: "button", class: side, text: t("play.design", { side: side.toUpperCase() }), "aria-pressed": String(side === "a"), onclick: () => chooseTab(side),
  }));
  const key = element("p", { class: "legend", "aria-hidden": "true" },
    ...[["a", t("play.design", { side: "A" })], ["b", t("play.design", { side: "B" })], ["circle", t("series.attention")],
      ["square", t("series.mlp")], ["dashed dash", t("legend.law")], ["dashed dot", t("legend.bound")]]
      .map(([kind, text]) => element("span", {}, element("i", { class: kind }), text)));
  const root = element("div", { class: "play", "data-side": "a" },
    stories.root,
    element("div", { class: "tabs", role: "group", "aria-label": t("play.tabs") }, ...tabs),
    element("div", { class: "cards" }, cards.a.root, cards.b.root),
    table.root,
    element("div", { class: "figures" }, grid.root, key));
  holder.append(root);

  function chooseTab(side) {
    root.dataset.side = side;
    tabs.forEach((tab, at) => tab.setAttribute("aria-pressed", String(SIDES[at] === side)));
  }

  // ---- asking and showing ----------------------------------------------------------------------
  const requests = Object.fromEntries(SIDES.map((side) => [side, curveRequests({
    api, side,
    on: {
      curves: (part) => {
        Object.assign(results[side], { curves: part.curves, dim: false, failed: false, oldLaws: true });
        succeed(side);
        inFrames(`facts ${side}`, () => {
          cards[side].facts(part.facts);
          cards[side].stale();
        });
        redraw();
      },
      laws: (part) => {
        Object.assign(results[side], { laws: part.laws, oldLaws: false });
        redraw();
      },
      verdict: (part) => {
        results[side].verdict = part.verdict;
        inFrames(`verdict ${side}`, () => cards[side].verdict(part.verdict));
      },
      error: (part) => fail(side, part),
      done: () => cards[side].busy(false),
    },
  })]));

  function succeed(side) {
    inFrames(`reason ${side}`, () => {
      table.fail(side, null, "");
      cards[side].depthFails("");
      cards[side].fail("");
    });
  }

  // The reason stands beside the knob that caused it; the old curves stay, pale.
  function fail(side, { knob, reason }) {
    inFrames(`reason ${side}`, () => {
      table.fail(side, knob, reason);
      cards[side].depthFails(knob === "depth" ? reason : "");
      cards[side].fail(reason);
      cards[side].busy(false);
    });
    results[side].dim = true;
    results[side].failed = true;
    redraw();
  }

  function redraw() {
    // Nothing is on its way when no design can be built: no chart says that it waits.
    grid.root.classList.toggle("without", SIDES.every((side) => results[side].failed && !results[side].curves));
    grid.update(Object.fromEntries(SIDES.map((side) => {
      const { curves, laws, oldLaws, trained, dim } = results[side];
      // Laws and bounds are those of the weights as drawn: pale beside curves of a trained model.
      return [side, { curves: trained || curves, laws, oldLaws: oldLaws || trained !== null, dim }];
    })));
  }

  function ask(side) {
    training.stop(side);
    cards[side].busy(true);
    requests[side].ask(differing(state[side], knobs));
  }

  function paint() {
    table.set(state);
    for (const side of SIDES) cards[side].set(state[side]);
    const clean = !state.preset || [...queryOf(state, spec).keys()].length === 1;
    stories.set(state.preset, !clean, state.unknown);
    grid.watch(watchedNames(state.preset, quantities));
  }

  // ---- changes -----------------------------------------------------------------------------------
  function change(side, name, value, live) {
    const same = state[side][name] === value;
    if (same && live) return;
    state = { ...state, unknown: [], [side]: { ...state[side], [name]: value } };
    const query = queryOf(state, spec);
    shown = query.toString();
    const now = performance.now();
    if (lastChange.key === side + name && now - lastChange.time < MERGED) address.join();
    lastChange = { key: side + name, time: now };
    if (live) address.drag(query);
    else address.push(query);
    paint();
    if (!same) ask(side);
  }

  function whole(next) {
    state = next;
    const query = queryOf(state, spec);
    shown = query.toString();
    address.push(query);
    paint();
    SIDES.forEach(ask);
  }

  // Takes the state of an address, and asks for what it changes.
  function apply(query, how) {
    if (![...query.keys()].length && presets.length) query.set("preset", presets[0].id);
    const before = state;
    state = { ...designsOf(query, spec), unknown: unknownOf(query, spec) };
    shown = queryOf(state, spec).toString();
    if (how === "push") address.push(queryOf(state, spec));
    paint();
    for (const side of SIDES) {
      const sent = JSON.stringify(state[side]);
      if (!before || JSON.stringify(before[side]) !== sent) ask(side);
    }
  }

  const forget = context.onAddress(() => {
    const query = address.read();
    if (query.toString() !== shown) apply(query, "keep");
  });
  apply(address.read(), "keep");

  return () => {
    forget();
    SIDES.forEach((side) => requests[side].stop());
    training.destroy();
    grid.destroy();
  };
}
