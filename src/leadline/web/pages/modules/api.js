// Everything that the page asks of its server. No other module fetches, so that a static site can
// put another module in place of this one. Every request carries the token of the address.

const KEY = "leadline-token";
let token = null;

function storage(kind) {
  try {
    return window[kind];
  } catch {
    return null;
  }
}

// Takes the token out of the address bar and keeps it for this tab and for new tabs.
export function takeToken() {
  const address = new URL(location.href);
  const stated = address.searchParams.get("token");
  if (stated) {
    keepToken(stated);
    address.searchParams.delete("token");
    history.replaceState(history.state, "", address.pathname + address.search + (address.hash || "#/"));
  } else {
    token = storage("sessionStorage")?.getItem(KEY) || storage("localStorage")?.getItem(KEY) || null;
  }
  return token;
}

export function keepToken(text) {
  const match = /[?&]token=([^&#\s]+)/.exec(text);
  const stated = match ? match[1] : text.trim();
  // Other letters are in no token, and many of them in no header: then the server asks again.
  token = /^[\w-]*$/.test(stated) ? stated : "";
  storage("sessionStorage")?.setItem(KEY, token);
  storage("localStorage")?.setItem(KEY, token);
}

// A refusal of the server: its status, its sentence, and what else it says (such as the knob).
class Refusal extends Error {
  constructor(status, details) {
    super(details.error || details.reason || `The server answered with status ${status}.`);
    this.status = status;
    this.details = details;
  }
}

async function ask(path, { body, signal, method, headers } = {}) {
  const answer = await fetch(path, {
    method: method || (body === undefined ? "GET" : "POST"),
    headers: {
      "X-Leadline-Token": token || "",
      ...(body === undefined ? {} : { "Content-Type": "application/json" }),
      ...headers,
    },
    body: body === undefined ? undefined : JSON.stringify(body),
    signal,
    cache: "no-store",
  });
  if (!answer.ok) {
    const text = await answer.text();
    let details = {};
    try {
      details = JSON.parse(text);
    } catch {
      details = { error: text.slice(0, 300) };
    }
    throw new Refusal(answer.status, details);
  }
  return answer;
}

async function json(path, options) {
  return (await ask(path, options)).json();
}

// Calls back with every line of an answer as soon as it is there.
async function eachLine(answer, onLine) {
  const reader = answer.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    rest += value ? decoder.decode(value, { stream: true }) : "";
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines) {
      onLine(line.endsWith("\r") ? line.slice(0, -1) : line);
    }
    if (done) break;
  }
  if (rest) onLine(rest);
}

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// Reads server-sent events with fetch, because an EventSource sends no headers. A connection that
// breaks is taken up again after the last event; `onEvent` returns true at the end. `onOpen` is
// called whenever the server begins to speak, `onLost` whenever it stops before the end.
async function events(path, onEvent, { signal, onOpen, onLost } = {}) {
  let last = null;
  let misses = 0;
  while (!signal?.aborted) {
    let ended = false;
    try {
      const answer = await ask(path, { signal, headers: last === null ? {} : { "Last-Event-ID": last } });
      misses = 0;
      let data = [];
      let open = false;
      await eachLine(answer, (line) => {
        if (!open) onOpen?.();
        open = true;
        if (line.startsWith("id:")) last = line.slice(3).trim();
        else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
        else if (line === "" && data.length) {
          const text = data.join("\n");
          data = [];
          ended = onEvent(JSON.parse(text)) === true || ended;
        }
      });
    } catch (error) {
      if (signal?.aborted) return;
      misses += 1;
      if (error instanceof Refusal || misses > 5) throw error;
    }
    if (ended || signal?.aborted) return;
    onLost?.();
    await pause(Math.min(8000, 300 * 2 ** misses));
  }
}

const query = (parts) => new URLSearchParams(parts).toString();

export const api = {
  session: () => json("api/session"),
  knobs: () => json("api/knobs"),
  words: (language) => json(`static/words/${language}.json`),

  // The curves of a design, part by part, as soon as each is known.
  curves: async (request, onPart, signal) => {
    const answer = await ask("api/curves", { body: request, signal });
    await eachLine(answer, (line) => {
      if (line) onPart(JSON.parse(line));
    });
  },

  train: (design, training) => json("api/train", { body: { design, training } }),
  diagnose: (request) => json("api/diagnose", { body: request }),
  jobs: () => json("api/jobs"),
  jobEvents: (job, onEvent, options) => events(`api/jobs/${encodeURIComponent(job)}/events`, onEvent, options),
  stopJob: (job) => json(`api/jobs/${encodeURIComponent(job)}/stop`, { method: "POST" }),
  pauseJob: (job) => json(`api/jobs/${encodeURIComponent(job)}/pause`, { method: "POST" }),
  continueJob: (job) => json(`api/jobs/${encodeURIComponent(job)}/continue`, { method: "POST" }),

  records: () => json("api/records"),
  recordsEvents: (onEvent, options) => events("api/records/events", onEvent, options),
  runEvents: (id, onEvent, options) => events(`api/runs/${encodeURIComponent(id)}/events`, onEvent, options),
  reportAddress: (ids) => `report?${query([...ids.map((id) => ["record", id]), ["token", token || ""]])}`,

  lessons: (language) => json(`api/lessons?${query({ language })}`),
  lesson: (id, language) => json(`api/lessons/${encodeURIComponent(id)}?${query({ language })}`),
  claimsAddress: (language) => `claims?${query({ token: token || "", language })}`,
};
