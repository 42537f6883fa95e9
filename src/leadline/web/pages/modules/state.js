// The address: the view, what it shows, and its state, all behind the "#".
// #/play?depth=48&b.placement=pre  ->  { view: "play", id: "", query: URLSearchParams }

// What no address of the page holds, such as half of a letter's bytes, stays as it is.
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function readAddress() {
  const text = location.hash.replace(/^#\/?/, "");
  const [path, query] = text.split(/\?(.*)/s);
  const [view, id] = path.split("/").map(decoded);
  return { view: view || "play", id: id || "", query: new URLSearchParams(query || "") };
}

export function addressText(view, id, query) {
  const path = id ? `${view}/${encodeURIComponent(id)}` : view;
  // Commas and parentheses of choices may stand as they are; the address stays readable.
  const text = new URLSearchParams(query).toString().replace(/%28/g, "(").replace(/%29/g, ")").replace(/%3D/g, "=").replace(/%2C/g, ",");
  return `#/${path}${text ? `?${text}` : ""}`;
}

// The address of one view: read and replace its query. While something is dragged many states
// follow each other; all of them are one entry of the history, made by the first.
export function viewAddress(view, id) {
  let timer = 0;
  let dragging = false;
  let latest = null;
  const write = (push) => {
    clearTimeout(timer);
    timer = 0;
    const text = addressText(view, id, latest);
    if (text === location.hash) return;
    if (push) history.pushState(null, "", text);
    else history.replaceState(null, "", text);
  };
  return {
    view,
    id,
    read: () => readAddress().query,
    replace: (query) => {
      latest = query;
      write(false);
    },
    push: (query) => {
      latest = query;
      write(!dragging);
      dragging = false;
    },
    // Browsers limit how often the address may change, so a drag writes it some times a second.
    drag: (query) => {
      latest = query;
      if (!dragging) {
        dragging = true;
        write(true);
      } else if (!timer) timer = setTimeout(() => write(false), 200);
    },
    // The next state belongs to the entry of the last one.
    join: () => {
      dragging = true;
    },
    end: () => clearTimeout(timer),
  };
}
