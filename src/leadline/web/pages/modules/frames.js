// Work in small pieces: at most some milliseconds of it in every frame, so that dragging stays
// smooth. A piece with the key of one that still waits takes its place.

const BUDGET = 7;
const waiting = new Map();
let planned = false;

export function inFrames(key, work) {
  waiting.delete(key); // so that pieces run in the order in which they were last asked for
  waiting.set(key, work);
  plan();
}

function plan() {
  if (planned) return;
  planned = true;
  requestAnimationFrame(run);
}

function run() {
  planned = false;
  const start = performance.now();
  for (const [key, work] of waiting) {
    waiting.delete(key);
    work();
    if (performance.now() - start > BUDGET) break;
  }
  if (waiting.size) plan();
}
