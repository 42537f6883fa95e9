// What a static site answers in place of a server: everything from scripts that were written with
// it, because a page that is opened from a disk may fetch nothing.
import { gridOf } from "./grid_data.js";

const parts = new Map(); // name -> promise of what its script hands over
const waiting = new Map(); // name -> the function that gets it
let spoken = {};

// Every file of data/ calls this with its name.
window.leadlineData = (name, content) => waiting.get(name)?.(content);

function data(name) {
  if (!parts.has(name)) {
    parts.set(name, new Promise((resolve, reject) => {
      waiting.set(name, resolve);
      const script = document.createElement("script");
      script.src = `data/${name}.js`;
      script.addEventListener("load", () => script.remove());
      script.addEventListener("error", () => {
        script.remove();
        parts.delete(name); // so that it can be asked for again
        reject(new Refusal(404, { error: `data/${name}.js is missing from this site.` }));
      });
      document.head.append(script);
    }));
  }
  return parts.get(name);
}

export class Refusal extends Error {
  constructor(status, details) {
    super(details.error || details.reason);
    this.status = status;
    this.details = details;
  }
}

// There is no token: whoever has the site may read it.
export function takeToken() {
  return "";
}

export function keepToken() {}

let grid = null;

async function theGrid() {
  const { grid: entries, spec } = await data("base");
  grid ??= gridOf(entries, spec.knobs);
  return grid;
}

// A text is chosen among those of the grid, instead of being written.
function knobOf(knob, values) {
  if (knob.kind !== "text") return knob;
  return { ...knob, kind: "choice", choices: values.map((name) => ({ name, summary: "", options: [] })) };
}

async function absent() {
  throw new Refusal(404, { error: spoken["export.absent"] });
}

async function lessonsIn(language) {
  return data(`lessons-${language}`);
}

export const api = {
  session: async () => (await data("base")).session,
  knobs: async () => {
    const { spec } = await data("base");
    const { offered, values } = await theGrid();
    return { ...spec, knobs: spec.knobs.map((knob) => knobOf(knob, values(knob.name))), offered };
  },
  words: async (language) => {
    spoken = (await data("base")).words[language];
    return spoken;
  },

  curves: async ({ design }, onPart, signal) => {
    const { fileOf, partsOf } = await theGrid();
    const place = fileOf(design);
    if (!place.file) {
      onPart({ part: "error", knob: place.knob, reason: spoken[place.knob ? "export.depth" : "play.limited"] });
      return;
    }
    const content = await data(place.file);
    for (const part of partsOf(content, design)) {
      if (signal?.aborted) return;
      onPart(part);
    }
  },

  train: absent,
  diagnose: absent,
  jobs: async () => [],
  jobEvents: absent,
  stopJob: absent,
  pauseJob: absent,
  continueJob: absent,

  records: async () => (await data("base")).records,
  recordsEvents: async () => {},
  runEvents: absent,
  reportAddress: (ids) => `records/${encodeURIComponent(ids[0])}.html`,

  lessons: async (language) => (await lessonsIn(language)).list,
  lesson: async (id, language) => {
    const { lessons } = await lessonsIn(language);
    if (!Object.hasOwn(lessons, id)) throw new Refusal(404, { error: spoken["export.noLesson"] });
    return lessons[id];
  },
  claimsAddress: (language) => `claims.html?language=${encodeURIComponent(language)}`,
};
