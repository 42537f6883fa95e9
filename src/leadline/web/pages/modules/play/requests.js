// One request at a time for each side: while one is on its way only the latest design waits, so
// that a slider never builds a queue.

export function latestOnly(send) {
  let running = null;
  let next = null;
  async function run(value) {
    const mine = { abort: new AbortController(), answered: false };
    running = mine;
    try {
      await send(value, {
        signal: mine.abort.signal,
        // The curves are there: what else would follow is not worth waiting for if another waits.
        answered: () => {
          mine.answered = true;
          if (next) mine.abort.abort();
        },
      });
    } finally {
      running = null;
      if (next) {
        const { value: latest } = next;
        next = null;
        run(latest);
      }
    }
  }
  return {
    ask: (value) => {
      if (!running) return run(value);
      next = { value };
      if (running.answered) running.abort.abort();
    },
    stop: () => {
      next = null;
      running?.abort.abort();
    },
  };
}

let named = null;

// A name for this tab, so that the server knows which request replaces which.
export function tabName() {
  named ??= Math.random().toString(36).slice(2, 12);
  return named;
}

// Asks for the curves of a design; `on` holds what to do with each part.
export function curveRequests({ api, side, on, client = tabName() }) {
  return latestOnly(async (design, { signal, answered }) => {
    let failed = false;
    try {
      await api.curves({ design, client, side }, (part) => {
        if (signal.aborted) return;
        if (part.part === "error") failed = true;
        on[part.part]?.(part);
        if (part.part === "curves") answered();
      }, signal);
    } catch (error) {
      if (signal.aborted) return;
      failed = true;
      on.error({ knob: null, reason: error.message });
    }
    if (!failed && !signal.aborted) on.done?.();
  });
}
