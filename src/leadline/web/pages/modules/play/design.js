// Designs and their spelling in the address.
// Without a preset, B starts from A: #/play?depth=48&b.placement=pre. With one, A and B start from
// the designs of the preset, and the address holds what was changed since.

export const SIDES = ["a", "b"];
export const NO_PRESET = "none";

// "hyper(lanes=4, dynamic=true)" -> { name: "hyper", options: { lanes: "4", dynamic: "true" } }
export function parseChoice(text) {
  const match = /^\s*([\w.-]+)\s*(?:\((.*)\))?\s*$/s.exec(String(text));
  if (!match) return { name: String(text), options: {} };
  const options = {};
  let [depth, quote, start] = [0, "", 0];
  const inside = match[2] || "";
  const take = (end) => {
    const [name, value] = inside.slice(start, end).split(/=(.*)/s);
    if (name.trim() && value !== undefined) options[name.trim()] = value.trim();
    start = end + 1;
  };
  [...inside].forEach((sign, at) => {
    if (quote) quote = sign === quote ? "" : quote;
    else if (sign === '"' || sign === "'") quote = sign;
    else if ("([".includes(sign)) depth += 1;
    else if (")]".includes(sign)) depth -= 1;
    else if (sign === "," && !depth) take(at);
  });
  take(inside.length);
  return { name: match[1], options };
}

export function choiceText(name, options) {
  const stated = Object.entries(options).filter(([, value]) => value !== "" && value !== undefined);
  return stated.length ? `${name}(${stated.map(([key, value]) => `${key}=${value}`).join(", ")})` : name;
}

export function defaultsOf(knobs) {
  return Object.fromEntries(knobs.map((knob) => [knob.name, knob.default]));
}

// Text of the address as a value of a knob; what is not a number stays text, and the server says so.
function valueOf(knob, text) {
  if (knob.kind !== "integer" && knob.kind !== "number") return text;
  const value = Number(text);
  return text.trim() !== "" && Number.isFinite(value) ? value : text;
}

export function designsOf(query, { knobs, presets }) {
  const preset = presets.find((one) => one.id === query.get("preset")) || null;
  const defaults = defaultsOf(knobs);
  const a = { ...defaults, ...preset?.a };
  const own = { a: {}, b: {} };
  for (const knob of knobs) {
    if (query.has(knob.name)) own.a[knob.name] = valueOf(knob, query.get(knob.name));
    if (query.has(`b.${knob.name}`)) own.b[knob.name] = valueOf(knob, query.get(`b.${knob.name}`));
  }
  Object.assign(a, own.a);
  const b = preset ? { ...defaults, ...preset.b, ...own.b } : { ...a, ...own.b };
  return { preset, a, b };
}

// What of an address is no state of this page, such as a knob whose name has a letter too many.
export function unknownOf(query, { knobs, presets }) {
  const names = new Set(["preset", ...knobs.flatMap(({ name }) => [name, `b.${name}`])]);
  const preset = query.get("preset");
  const odd = [...query.keys()].filter((name) => !names.has(name));
  if (preset && preset !== NO_PRESET && !presets.some((one) => one.id === preset)) odd.push(`preset=${preset}`);
  return odd;
}

export function queryOf({ preset, a, b }, { knobs }) {
  const query = new URLSearchParams();
  const defaults = defaultsOf(knobs);
  const start = { a: { ...defaults, ...preset?.a }, b: preset ? { ...defaults, ...preset.b } : a };
  if (preset) query.set("preset", preset.id);
  for (const { name } of knobs) if (a[name] !== start.a[name]) query.set(name, a[name]);
  for (const { name } of knobs) if (b[name] !== start.b[name]) query.set(`b.${name}`, b[name]);
  if (!preset && ![...query.keys()].length) query.set("preset", NO_PRESET);
  return query;
}

// What of a design differs from the defaults; this is what is sent.
export function differing(design, knobs) {
  return Object.fromEntries(knobs.filter((knob) => design[knob.name] !== knob.default).map((knob) => [knob.name, design[knob.name]]));
}
