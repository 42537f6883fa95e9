// A small playground inside a lesson.
// figure(holder, context, { base, other, knobs, curves, caption, open }) -> function that takes it away
//   base, other  designs, as what differs from the defaults; with `other` there are two, A and B
//   knobs        names of the knobs that the reader may turn
//   curves       names of the quantities that are drawn
//   caption      a sentence below
//   open         words of a link to the playground, which opens the designs as they are turned here
import { lineChart } from "../chart.js";
import { element, setText } from "../elements.js";
import { inFrames } from "../frames.js";
import { addressText } from "../state.js";
import { defaultsOf, differing, queryOf } from "./design.js";
import { quantityAbout, quantityLabel } from "./grid.js";
import { knobTable } from "./knobs.js";
import { linesOf } from "./lines.js";
import { curveRequests, tabName } from "./requests.js";
import { verdictText } from "./verdict.js";

let counted = 0;

export function figure(holder, context, options) {
  const root = element("figure", { class: "play-figure" });
  holder.append(root);
  let end = null;
  let gone = false;
  context.api.knobs().then((spec) => {
    if (!gone) end = draw(root, spec, context, options);
  }).catch((error) => root.append(element("p", { class: "reason", role: "alert", text: error.message })));
  return () => {
    gone = true;
    end?.();
    root.remove();
  };
}

function draw(root, spec, context, { base, other, knobs, curves, caption, open }) {
  const { t, api } = context;
  const sides = other ? ["a", "b"] : ["a"];
  counted += 1;
  const name = `figure${counted}`;
  const start = defaultsOf(spec.knobs);
  const state = { a: { ...start, ...base }, b: { ...start, ...other } };
  const results = { a: null, b: null };
  const turned = (knobs || []).map((one) => spec.knobs.find((knob) => knob.name === one)).filter(Boolean);
  const table = knobTable(turned, sides, {
    t, offered: spec.offered, head: other ? heads() : null,
    onChange: (side, knob, value) => {
      if (state[side][knob] === value) return;
      state[side] = { ...state[side], [knob]: value };
      table.set(state);
      aim();
      requests[side].ask(differing(state[side], spec.knobs));
    },
  });
  if (!other) table.root.classList.add("single");
  const sentences = Object.fromEntries(sides.map((side) => [side, element("p", { class: `figure-verdict ${side}`, "aria-live": "polite" })]));
  const reason = element("p", { class: "reason", role: "alert", hidden: true });
  const holder = element("div", { class: "curves" });
  const link = open ? element("a", { class: "figure-open", text: open }) : null;
  root.append(turned.length ? table.root : "", reason, ...sides.map((side) => sentences[side]), holder,
    caption ? element("figcaption", { text: caption }) : "", link || "");
  const charts = (curves || []).map((one) => spec.quantities.find((quantity) => quantity.name === one)).filter(Boolean)
    .map((quantity) => [quantity.name, lineChart(holder, {
      title: quantityLabel(quantity, t), about: quantityAbout(quantity, t), unit: quantity.symbol || quantity.unit,
      scale: quantity.scale, across: t("word.layer"), t, heading: "h3",
    })]);

  function heads() {
    return element("div", { class: "knob-head" }, element("div", { class: "knob-name" }),
      ...sides.map((side) => element("div", { class: `cell ${side}` }, element("span", { class: "letter", text: side.toUpperCase() }))));
  }

  function aim() {
    if (!link) return;
    const b = other ? state.b : state.a;
    link.href = addressText("play", "", queryOf({ preset: null, a: state.a, b }, spec));
  }

  function redraw() {
    for (const [quantity, chart] of charts) {
      inFrames(chart, () => chart.update(linesOf(quantity, results, t, { letters: sides.length > 1 })));
    }
  }

  const requests = Object.fromEntries(sides.map((side) => [side, curveRequests({
    api, side, client: `${tabName()}.${name}`,
    on: {
      curves: (part) => {
        results[side] = { curves: part.curves, laws: results[side]?.laws || [], dim: false, oldLaws: true };
        reason.hidden = true;
        table.fail(side, null, "");
        redraw();
      },
      laws: (part) => {
        if (results[side]) Object.assign(results[side], { laws: part.laws, oldLaws: false });
        redraw();
      },
      verdict: (part) => setText(sentences[side], `${sides.length > 1 ? `${side.toUpperCase()}: ` : ""}${verdictText(part.verdict, t)}`),
      error: (part) => {
        if (!table.fail(side, part.knob, part.reason)) {
          reason.hidden = false;
          setText(reason, part.reason);
        }
        if (results[side]) results[side].dim = true;
        redraw();
      },
    },
  })]));
  table.set(state);
  aim();
  sides.forEach((side) => requests[side].ask(differing(state[side], spec.knobs)));

  return () => {
    sides.forEach((side) => requests[side].stop());
    charts.forEach(([, chart]) => chart.destroy());
  };
}
