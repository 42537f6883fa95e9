// One control of one knob of one design: a list with the options of its part, a slider with its
// number, or a text. control(knob, ...) returns { root, set(value), fail(reason), limit(values) }.
// `limit` leaves only some values to choose from, which is what a static site does.
import { element, freshId } from "../elements.js";
import { choiceText, parseChoice } from "./design.js";

const MOST = 90; // characters of a summary in a list

export function control(knob, { label, onChange, t, big }) {
  const kinds = { choice: choiceControl, integer: numberControl, number: numberControl, text: textControl };
  const reason = element("p", { class: "reason", id: freshId("reason"), hidden: true });
  const made = (kinds[knob.kind] || textControl)(knob, { label, onChange, t, big });
  const root = element("div", { class: `control ${knob.kind}` }, ...made.parts, reason);
  return {
    root,
    set: made.set,
    limit: (values) => {
      made.limit(values);
      root.title = values.length < 2 ? t("play.limited") : "";
    },
    fail: (text) => {
      reason.hidden = !text;
      reason.textContent = text || "";
      for (const field of root.querySelectorAll("input, select, textarea")) {
        if (text) field.setAttribute("aria-invalid", "true");
        else field.removeAttribute("aria-invalid");
        if (text) field.setAttribute("aria-describedby", reason.id);
        else field.removeAttribute("aria-describedby");
      }
    },
  };
}

function clipped(text) {
  return text.length > MOST ? `${text.slice(0, MOST - 1)}…` : text;
}

function choiceControl(knob, { label, onChange, t }) {
  const select = element("select", { "aria-label": label });
  const groups = new Map();
  for (const choice of knob.choices) {
    const place = choice.group || "";
    if (!groups.has(place)) groups.set(place, place ? element("optgroup", { label: place }) : select);
    const text = choice.summary ? `${choice.name} · ${clipped(choice.summary)}` : choice.name;
    groups.get(place).append(element("option", { value: choice.name, text }));
  }
  for (const group of groups.values()) if (group !== select) select.append(group);
  const shown = element("span", { class: "chosen-name", "aria-hidden": "true" });
  const summary = element("p", { class: "summary" });
  const names = element("summary", {});
  const inputs = element("div", {});
  const fields = element("details", { class: "options" }, names, inputs);
  let current = { name: "", options: {} };
  let fixed = false; // whether options stay as they are
  const report = () => onChange(choiceText(current.name, current.options), false);
  select.addEventListener("change", () => {
    current = { name: select.value, options: {} };
    draw();
    fields.open = true;
    report();
  });

  function draw() {
    const choice = knob.choices.find((one) => one.name === current.name);
    if (!choice && ![...select.options].some((one) => one.value === current.name)) {
      select.append(element("option", { value: current.name, text: current.name }));
    }
    select.value = current.name;
    shown.textContent = current.name;
    summary.textContent = choice?.summary || "";
    const options = choice?.options || [];
    fields.hidden = !options.length;
    fields.open = Object.keys(current.options).length > 0;
    names.textContent = options.map((option) => spacedName(option)).join(", ");
    inputs.replaceChildren(...options.map((option) => optionField(option, current, { label, report })));
    if (fixed) inputs.querySelectorAll("input, select").forEach((field) => { field.disabled = true; });
  }
  return {
    parts: [element("div", { class: "picker" }, select, shown), summary, fields],
    set: (value) => {
      const next = parseChoice(value);
      if (choiceText(next.name, next.options) === choiceText(current.name, current.options)) return;
      current = next;
      draw();
    },
    limit: (values) => {
      for (const option of select.options) option.disabled = !values.includes(option.value);
      select.disabled = values.length < 2;
      fixed = true;
      if (current.name) draw();
    },
  };
}

const spacedName = (option) => option.name.replaceAll("_", " ");

function optionField(option, current, { label, report }) {
  const id = freshId("option");
  const stated = current.options[option.name];
  const spelled = (value) => (value === null || value === undefined ? "none" : String(value));
  const keep = (value) => {
    if (value === spelled(option.default)) delete current.options[option.name];
    else current.options[option.name] = value;
    report();
  };
  const name = element("label", { for: id, text: spacedName(option) });
  if (option.kind === "flag" || option.kind === "boolean" || typeof option.default === "boolean") {
    const box = element("input", { id, type: "checkbox", "aria-label": `${label}: ${option.name}`, onchange: () => keep(String(box.checked)) });
    box.checked = (stated ?? spelled(option.default)) === "true";
    return element("div", { class: "option" }, name, box);
  }
  const choices = Array.isArray(option.choices) ? option.choices : null;
  // Some numbers may also be a word, such as "depth" for what follows from it.
  const words = option.words || (stated !== undefined && !Number.isFinite(Number(stated)));
  const numeric = !words && (option.kind === "integer" || option.kind === "number");
  const field = choices
    ? element("select", { id }, ...choices.map((one) => element("option", { value: String(one.name ?? one), text: String(one.name ?? one) })))
    : element("input", {
      id, type: numeric ? "number" : "text", min: option.min, max: option.max,
      step: option.kind === "integer" ? "1" : "any", spellcheck: "false", placeholder: spelled(option.default),
    });
  field.setAttribute("aria-label", `${label}: ${option.name}`);
  field.value = stated ?? (option.default === null || option.default === undefined ? "" : spelled(option.default));
  field.addEventListener("change", () => keep(field.value.trim() || spelled(option.default)));
  return element("div", { class: "option" }, name, field);
}

function numberControl(knob, { label, onChange, big, t }) {
  const step = knob.step || (knob.kind === "integer" ? 1 : 0.05);
  const limits = { min: knob.min, max: knob.max, step };
  const slider = element("input", { type: "range", ...limits, "aria-label": label, class: big ? "big" : null });
  const field = element("input", {
    type: "number", ...limits, step: knob.kind === "integer" ? 1 : "any", "aria-label": t("play.exactly", { label }),
  });
  let offered = null; // the values to choose from; the slider then counts their places
  let current = knob.default;
  const slid = () => (offered ? offered[Number(slider.value)] ?? current : Number(slider.value));
  const place = (value) => {
    current = value;
    slider.value = offered ? nearestPlace(offered, value) : value;
    if (offered) slider.setAttribute("aria-valuetext", String(value));
  };
  slider.addEventListener("input", () => {
    field.value = slid();
    onChange(slid(), true);
  });
  slider.addEventListener("change", () => onChange(slid(), false));
  field.addEventListener("change", () => {
    let value = field.value.trim() === "" ? knob.default : Number(field.value);
    if (offered) value = steppedTo(offered, current, value);
    field.value = value;
    place(value);
    onChange(value, false);
  });
  return {
    parts: [slider, field],
    set: (value) => {
      if (document.activeElement !== field || Number(field.value) !== value) field.value = value;
      place(value);
    },
    limit: (values) => {
      offered = values;
      Object.assign(slider, { min: 0, max: Math.max(0, values.length - 1), step: 1 });
      slider.disabled = field.disabled = values.length < 2;
    },
  };
}

function nearestPlace(values, value) {
  const far = values.map((one) => Math.abs(one - value));
  return far.indexOf(Math.min(...far));
}

// The nearest value; a small step away from the current one leads to its neighbour.
function steppedTo(values, current, wished) {
  const at = nearestPlace(values, wished);
  if (values[at] !== current || wished === current) return values[at] ?? current;
  return values[at + Math.sign(wished - current)] ?? current;
}

function textControl(knob, { label, onChange }) {
  const field = element("textarea", { rows: 2, "aria-label": label, spellcheck: "false" });
  field.addEventListener("input", () => onChange(field.value, true));
  field.addEventListener("change", () => onChange(field.value, false));
  return {
    parts: [field],
    set: (value) => {
      if (field.value !== value) field.value = value;
    },
    limit: (values) => {
      field.disabled = values.length < 2;
    },
  };
}
