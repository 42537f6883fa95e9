// The lines of a chart: the curves of both designs, and what theory says of them.

// The marker of a series by its label; one of another label has that of its place.
const MARKERS = { attention: "circle", mlp: "square" };
const OTHERS = ["triangle", null, "circle", "square"];

export function seriesLabel(label, t) {
  return t.or(`series.${label}`, label);
}

// `results` = { a: { curves, laws, dim, oldLaws } | null, b: ... } -> lines for chart.js. Laws that belong
// to earlier curves are pale until theirs arrive.
export function linesOf(quantity, results, t, { letters = true } = {}) {
  const lines = [];
  for (const side of ["a", "b"]) {
    const result = results[side];
    const curve = result?.curves?.find((one) => one.quantity === quantity);
    if (!curve) continue;
    curve.series.forEach((series, at) => {
      const several = curve.series.length > 1;
      const letter = letters ? side.toUpperCase() : "";
      const name = several ? seriesLabel(series.label, t) : "";
      lines.push({
        label: [letter, name].filter(Boolean).join(" ") || seriesLabel(series.label, t),
        x: series.layers, values: series.values, exponents: series.exponents,
        colour: side, marker: several ? MARKERS[series.label] || OTHERS[at % OTHERS.length] : null, dim: result.dim,
      });
    });
  }
  // Where both designs agree, B is dashed, so that A shows through.
  for (const line of lines) {
    if (line.colour === "b" && lines.some((other) => other.colour === "a" && coincide(line, other))) line.dash = "longdash";
  }
  const laws = new Map();
  for (const side of ["a", "b"]) {
    for (const law of results[side]?.laws || []) {
      if (law.quantity !== quantity) continue;
      const key = JSON.stringify([law.name, law.label, law.values]);
      if (laws.has(key)) laws.get(key).sides.push(side);
      else laws.set(key, { law, sides: [side], dim: results[side].dim || results[side].oldLaws });
    }
  }
  for (const { law, sides, dim } of laws.values()) {
    const shared = sides.length > 1 || !letters;
    const label = t.or(`law.${law.label}`, law.label);
    lines.push({
      law: true,
      label: shared ? label : `${sides[0].toUpperCase()}: ${label}`,
      short: label, source: [law.formula, law.source].filter(Boolean).join(" · "), kind: law.kind,
      x: law.layers, values: law.values, exponents: law.exponents,
      colour: shared ? "soft" : sides[0], dash: law.kind === "law" ? "dash" : "dot", dim,
    });
  }
  return lines;
}

function coincide(one, other) {
  const same = (a, b) => a === b || Math.abs(a - b) <= 0.004 * Math.max(Math.abs(a), Math.abs(b));
  return one.x.length === other.x.length && one.values.every((value, at) =>
    same(value, other.values[at]) && one.exponents?.[at] === other.exponents?.[at]);
}
