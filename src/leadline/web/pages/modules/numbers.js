// Numbers as text. A value is v * 10^e, so that what is too small for a float can be written, too.

export function raised(power) {
  return String(power).replace(/./g, (sign) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(sign)]);
}

export function numberText(value, exponent = 0, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const sign = value < 0 ? "−" : "";
  if (!Number.isFinite(value)) return `${sign}∞`;
  if (value === 0) return "0";
  let [mantissa, power] = Math.abs(value).toExponential(digits - 1).split("e").map(Number);
  if (!Number.isInteger(exponent)) {
    const places = Math.log10(Math.abs(value)) + exponent;
    [mantissa, power] = [10 ** (places - Math.floor(places)), Math.floor(places) - exponent];
  }
  const whole = Math.round(power + exponent);
  if (whole >= -3 && whole < 5) {
    return sign + (mantissa * 10 ** whole).toFixed(Math.max(0, digits - 1 - whole));
  }
  return `${sign}${mantissa.toFixed(digits - 1)}×10${raised(whole)}`;
}

// A whole number with thin spaces between its thousands.
export function countText(value) {
  return String(value).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

export function tickText(value) {
  const size = Math.abs(value);
  if (value === 0 || (size >= 1e-3 && size < 1e5)) {
    return String(Number(value.toPrecision(6))).replace("-", "−");
  }
  const [mantissa, power] = value.toExponential(3).split("e").map(Number);
  const ten = `10${raised(power)}`;
  return (mantissa === 1 ? ten : `${mantissa}×${ten}`).replace("-", "−");
}

// A tick of a logarithmic axis, on which a decade has length 1.
export function decadeText(place) {
  const power = Math.floor(place + 1e-9);
  const factor = Number((10 ** (place - power)).toPrecision(3));
  if (power >= -2 && power <= 3) return tickText(Number((factor * 10 ** power).toPrecision(4)));
  return factor === 1 ? `10${raised(power)}` : `${factor}×10${raised(power)}`;
}

// Round numbers between two ends, about as many as `most`.
export function roundTicks(low, high, most, whole = false) {
  const raw = (high - low) / Math.max(1, most);
  if (!(raw > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(raw));
  let step = power * [1, 2, 2.5, 5, 10].find((factor) => power * factor >= raw * (1 - 1e-9));
  if (whole) step = Math.max(1, Math.ceil(step));
  const marks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) marks.push(k * step);
  return marks;
}

const FACTORS = [[1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 5], [1, 2, 5], [1, 3], [1]];

// Ticks of a logarithmic axis between two places: round numbers, 1, 2, 5 of few decades, or decades.
export function decadeTicks(low, high, most) {
  const span = high - low;
  if (span < 0.5 && low > -300) return roundTicks(10 ** low, 10 ** high, most).filter((one) => one > 0).map(Math.log10);
  if (span > most) return roundTicks(low, high, most, true);
  let marks = [];
  for (const factors of FACTORS) {
    const next = placesOf(factors, low, high);
    if (next.length < 2) break;
    marks = next;
    if (marks.length <= most + 1) break;
  }
  return marks;
}

function placesOf(factors, low, high) {
  const marks = [];
  for (let power = Math.floor(low); power <= Math.ceil(high); power++) {
    for (const factor of factors) {
      const place = power + Math.log10(factor);
      if (place >= low - 1e-9 && place <= high + 1e-9) marks.push(place);
    }
  }
  return marks;
}
