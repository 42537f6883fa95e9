// The designs of the grid: which there are, and their curves from the short form in which the files
// of data/ hold them (`leadline.web.export.encoding` says what it is).

// Returns { fileOf(design), partsOf(content, design), offered(design, name), values(name) }.
export function gridOf(entries, knobs) {
  const defaults = Object.fromEntries(knobs.map((knob) => [knob.name, knob.default]));
  const names = knobs.map((knob) => knob.name).filter((name) => name !== "depth");
  const keyOf = (design) => JSON.stringify(names.map((name) => design[name] ?? defaults[name]));
  const families = new Map(entries.map((entry) => [keyOf(entry.knobs), entry]));
  const familyOf = (design) => families.get(keyOf(design));
  const depthOf = (design) => design.depth ?? defaults.depth;
  const values = Object.fromEntries(names.map((name) => [
    name, [...new Set([defaults[name], ...entries.map((entry) => entry.knobs[name] ?? defaults[name])])],
  ]));
  for (const name of names) if (typeof defaults[name] === "number") values[name].sort((one, two) => one - two);
  return {
    fileOf: (design) => {
      const family = familyOf(design);
      if (!family) return { file: null, knob: null };
      return family.depths.includes(depthOf(design)) ? { file: family.file } : { file: null, knob: "depth" };
    },
    partsOf: (content, design) => partsOf(content, { ...defaults, ...design }),
    // What a knob of this design may be turned to, the others staying as they are.
    offered: (design, name) => {
      if (name === "depth") return familyOf(design)?.depths || [];
      return values[name].filter((value) => familyOf({ ...design, [name]: value })?.depths.includes(depthOf(design)));
    },
    values: (name) => values[name] || [],
  };
}

function partsOf({ words, depths }, design) {
  const short = depths[String(design.depth)];
  return [
    {
      part: "curves", design, facts: short.f,
      curves: short.c.map(([quantity, lines]) => ({
        quantity: words[quantity],
        series: lines.map(([label, ...numbers]) => ({ label: words[label], ...numbersOf(numbers) })),
      })),
    },
    { part: "verdict", verdict: short.v },
    {
      part: "laws",
      laws: short.l.map(([quantity, name, label, kind, formula, source, ...numbers]) => ({
        quantity: words[quantity], name: words[name], label: words[label], kind: words[kind],
        formula: words[formula], source: words[source],
        ...numbersOf(numbers),
      })),
    },
    { part: "end" },
  ];
}

function numbersOf([places, values, exponents]) {
  const layers = layersOf(places);
  const numbers = { layers, values: spread(values, layers.length) };
  return exponents === 0 ? numbers : { ...numbers, exponents: spread(exponents, layers.length) };
}

function layersOf([first, last, step]) {
  if (Array.isArray(first)) return first;
  return Array.from({ length: Math.round((last - first) / step) + 1 }, (_, at) => first + at * step);
}

function spread(values, count) {
  return Array.isArray(values) ? values : new Array(count).fill(values);
}
