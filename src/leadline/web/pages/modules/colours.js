// The colours of the page as a canvas needs them: resolved for the theme that is on.

const NAMES = ["a", "b", "ink", "soft", "grid", "axis", "card", "green", "purple", "ochre", "serious"];
const listeners = new Set();
let held = null;

export function colours() {
  if (held) return held;
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  held = {};
  for (const name of NAMES) {
    probe.style.color = `var(--${name})`;
    held[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return held;
}

// Calls back whenever the theme changes; returns what ends it.
export function onTheme(callback) {
  listeners.add(callback);
  return () => listeners.delete(callback);
}

function changed() {
  held = null;
  listeners.forEach((callback) => callback());
}

const systemDark = matchMedia("(prefers-color-scheme: dark)");
systemDark.addEventListener("change", changed);

export function themeName() {
  return document.documentElement.dataset.theme || (systemDark.matches ? "dark" : "light");
}

export function setTheme(name) {
  document.documentElement.dataset.theme = name;
  try {
    localStorage.setItem("leadline-theme", name);
  } catch { /* kept for this visit only */ }
  changed();
}
