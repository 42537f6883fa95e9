// What uPlot does not draw by itself: markers, values without a place, and the labels of laws.

const MARKERS = 12;

export function drawMarkers(view, lines, points, colours) {
  const { ctx: c, bbox } = view;
  const pixel = devicePixelRatio;
  c.save();
  lines.forEach((line, index) => {
    if (line.law && !points[index].zeros) return;
    const { x, y } = points[index];
    c.fillStyle = c.strokeStyle = colours[line.colour || "ink"];
    c.globalAlpha = line.dim ? 0.3 : 1;
    const every = Math.max(1, Math.ceil(x.length / MARKERS));
    x.forEach((place, at) => {
      const left = view.valToPos(place, "x", true);
      if (y[at] === null) {
        if (line.law || at % every) return;
        const zero = line.values[at] === 0;
        mark(c, zero ? "triangle" : "cross", left, bbox.top + bbox.height - 4 * pixel, 3.2 * pixel);
      } else if ((line.marker && at % every === 0) || x.length === 1) {
        mark(c, line.marker || "circle", left, view.valToPos(y[at], "y", true), 2.7 * pixel);
      }
    });
  });
  c.restore();
}

function mark(c, shape, x, y, r) {
  c.beginPath();
  if (shape === "square") c.rect(x - r, y - r, 2 * r, 2 * r);
  else if (shape === "triangle") {
    c.moveTo(x - r, y - r);
    c.lineTo(x + r, y - r);
    c.lineTo(x, y + r);
    c.closePath();
  } else if (shape === "cross") {
    c.moveTo(x - r, y - r); c.lineTo(x + r, y + r);
    c.moveTo(x - r, y + r); c.lineTo(x + r, y - r);
    c.lineWidth = r / 2;
    return c.stroke();
  } else c.arc(x, y, r, 0, 7);
  c.fill();
}

// The label of a law stands on its line where it covers least; where all is full, it is left out
// here and stands in the key of the enlarged chart.
export function labelLaws(view, lines, points, colours) {
  const { ctx: c, bbox } = view;
  const pixel = devicePixelRatio;
  const size = 10.5 * pixel;
  const taken = [];
  const spots = points.map((one) => one.x.map((x, at) =>
    (one.y[at] === null ? null : [view.valToPos(x, "x", true), view.valToPos(one.y[at], "y", true)])).filter(Boolean));
  c.save();
  c.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
  c.textAlign = "left"; // uPlot leaves that of its axes
  c.textBaseline = "middle";
  lines.forEach((line, index) => {
    if (!line.law || !line.short || spots[index].length < 2) return;
    const width = c.measureText(line.short).width;
    let best = null;
    for (const share of [0.55, 0.35, 0.75, 0.15, 0.95]) {
      const [x, y] = spots[index][Math.floor(share * (spots[index].length - 1))];
      // In the middle above or below the line, or beside its slope.
      for (const [aside, down] of [[0.5, -1], [0.5, 1], [0, 1], [1, -1], [0, -1], [1, 1]]) {
        const left = Math.max(bbox.left + 3 * pixel, Math.min(x - aside * width, bbox.left + bbox.width - width - 3 * pixel));
        const middle = y + 0.95 * down * size;
        const box = [left, middle - size * 0.6, left + width, middle + size * 0.6];
        if (box[1] < bbox.top || box[3] > bbox.top + bbox.height) continue;
        const cost = covered(box, spots, index) + 50 * taken.filter((other) => meets(box, other)).length;
        if (!best || cost < best.cost) best = { box, cost, middle };
      }
    }
    if (!best || best.cost > 1) return;
    taken.push(best.box);
    c.lineWidth = 3 * pixel;
    c.strokeStyle = colours.card;
    c.strokeText(line.short, best.box[0], best.middle);
    c.fillStyle = colours[line.colour || "ink"];
    c.fillText(line.short, best.box[0], best.middle);
  });
  c.restore();
}

const meets = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];

// How many pieces of lines run through a box; those of its own line matter little.
function covered(box, spots, own) {
  let count = 0;
  spots.forEach((line, index) => {
    for (let at = 1; at < line.length; at++) {
      const [[x0, y0], [x1, y1]] = [line[at - 1], line[at]];
      if (x1 < box[0] || x0 > box[2]) continue;
      if (Math.max(y0, y1) >= box[1] && Math.min(y0, y1) <= box[3]) count += index === own ? 0.5 : 1;
    }
  });
  return count;
}
