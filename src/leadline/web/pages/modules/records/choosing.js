// Which records the list shows, and in which order; no part of the page is touched here.
import { timeOf } from "./entry.js";

export const LEVELS = ["serious", "warning", "note", "healthy", "none"];
export const STATUSES = ["being written", "finished", "interrupted", "damaged"];
export const ORDERS = ["newest", "worst", "name", "size"];

const levelOf = (entry) => entry.verdict?.level || "none";

// Every word of the search has to stand somewhere in what is said of the record.
export function matches(entry, { search, level, status }, kind) {
  if (level && levelOf(entry) !== level) return false;
  if (status && entry.status !== status) return false;
  const text = [entry.path, entry.name, kind, entry.status, entry.verdict?.sentence].join(" ").toLowerCase();
  return search.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

const writing = (entry) => (entry.status === "being written" ? 0 : 1);
const byName = (a, b) => a.path.localeCompare(b.path, undefined, { numeric: true });
const BEFORE = {
  newest: (a, b) => writing(a) - writing(b) || (timeOf(b.made) ?? 0) - (timeOf(a.made) ?? 0) || byName(a, b),
  worst: (a, b) => LEVELS.indexOf(levelOf(a)) - LEVELS.indexOf(levelOf(b)) || byName(a, b),
  name: byName,
  size: (a, b) => b.size - a.size || byName(a, b),
};

export function inOrder(entries, order) {
  return [...entries].sort(BEFORE[order] || BEFORE.newest);
}
