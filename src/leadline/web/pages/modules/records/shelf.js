// The records of the folder as the server knows them, kept up to date through lost connections.

// Calls `onChange(entries, state)` with a Map of entries by id; state is "open", "lost" or "gone",
// and `reason` says why it is gone. Returns { end(), again() }.
export function followShelf(api, onChange) {
  let entries = null;
  let abort = null;
  let state = "open";

  const say = (reason = "") => entries && onChange(entries, state, reason);

  // The whole list, whenever a connection begins: what changed while it was lost is in it.
  async function list(signal) {
    try {
      const all = await api.records();
      if (signal.aborted) return;
      entries = new Map(all.map((entry) => [entry.id, entry]));
      state = "open";
      say();
    } catch (error) {
      fail(error, signal);
    }
  }

  function fail(error, signal) {
    if (signal.aborted) return;
    abort.abort();
    entries = entries || new Map();
    state = "gone";
    say(error.message);
  }

  function hear(event) {
    if (event.event !== "records" || !entries) return;
    [...event.added, ...event.changed].forEach((entry) => entries.set(entry.id, entry));
    event.removed.forEach((id) => entries.delete(id));
    say();
  }

  function start() {
    abort?.abort();
    abort = new AbortController();
    const { signal } = abort;
    api.recordsEvents(hear, {
      signal,
      onOpen: () => list(signal),
      onLost: () => {
        state = "lost";
        say();
      },
    }).catch((error) => fail(error, signal));
  }

  start();
  return { end: () => abort.abort(), again: start };
}
