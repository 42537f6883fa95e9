// Where the numbers of a line stand in a chart, without drawing anything.
// On a logarithmic axis a place is log10 of the value, so exponents below those of a float fit.

export function plotted(line, log) {
  let zeros = 0;
  let gaps = 0;
  const y = line.values.map((value, at) => {
    if (value === null || value === undefined || !Number.isFinite(value)) {
      gaps += 1;
      return null;
    }
    const exponent = line.exponents?.[at] || 0;
    if (!log) return value * 10 ** exponent;
    if (value > 0) return Math.log10(value) + exponent;
    zeros += 1;
    return null;
  });
  return { x: line.x, y, zeros, gaps };
}

// The columns of uPlot: all places in order, then the values of every line there.
// For uPlot null is a gap, and undefined is no value here.
export function columnsOf(points) {
  const places = [...new Set(points.flatMap((one) => one.x))].sort((a, b) => a - b);
  if (!places.length) return [[0, 1], ...points.map(() => [null, null])];
  const index = new Map(places.map((x, at) => [x, at]));
  return [places, ...points.map((one) => {
    const column = new Array(places.length).fill(undefined);
    one.x.forEach((x, at) => {
      column[index.get(x)] = one.y[at];
    });
    return column;
  })];
}

function ends(points, pick) {
  let [low, high] = [Infinity, -Infinity];
  for (const one of points) {
    for (const value of pick(one)) {
      if (value === null) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return low > high ? null : [low, high];
}

// The ends of both axes. Laws may widen the axis, but never so far that the curves look flat.
export function rangeOf(points, lines, log) {
  const curves = points.filter((_, at) => !lines[at].law);
  const [first, last] = ends(points, (one) => one.x) || [0, 1];
  const apart = Math.max(last - first, 1);
  const x = [first - 0.02 * apart, last + 0.03 * apart];
  const main = ends(curves.length ? curves : points, (one) => one.y);
  if (!main) return { x, y: log ? [-1, 1] : [0, 1] };
  let [low, high] = main;
  const all = ends(points, (one) => one.y);
  const size = Math.max(high - low, log ? 1 : 1e-12 + 0.1 * Math.abs(high));
  low = Math.max(all[0], low - 0.8 * size);
  high = Math.min(all[1], high + 0.8 * size);
  return { x, y: log ? decades(low, high) : room(low, high) };
}

// Whole decades, so that the axis stays where it is while a curve moves a little.
function decades(low, high) {
  if (high - low > 12) return [low - 0.04 * (high - low), high + 0.04 * (high - low)];
  if (high - low > 1.6) return [Math.floor(low + 0.02), Math.ceil(high - 0.02)];
  const middle = (low + high) / 2;
  const half = Math.max(0.58 * (high - low), 0.16);
  return [middle - half, middle + half];
}

// A line that varies by less than one percent shall look flat.
function room(low, high) {
  const size = Math.max(Math.abs(low), Math.abs(high)) || 1;
  if (high - low <= 0.01 * size) return [low - 0.1 * size, high + 0.1 * size];
  return [low - 0.06 * (high - low), high + 0.08 * (high - low)];
}

// A chart in words, for who cannot see it: every curve from its first to its last value.
export function describe(lines, across, text) {
  return lines.filter((line) => line.x.length).map((line) => {
    const last = line.x.length - 1;
    const at = (place) => `${text(line.values[place], line.exponents?.[place] || 0)} (${across} ${line.x[place]})`;
    return `${line.label}: ${at(0)} → ${at(last)}`;
  }).join("; ");
}
