// What the list says of a record, in words: its kind, its time, its size, its state.
import { element } from "../elements.js";

const SIGNS = { "being written": "●", interrupted: "◐", finished: "", damaged: "✕" };
const RUNS = ["train", "watch", "sweep"];

export function kindText(kind, t) {
  return kind ? t.or(`records.kind.${kind}`, kind) : "–";
}

export function sizeText(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  const [size, unit] = bytes < 1e6 ? [bytes / 1e3, "kB"] : bytes < 1e9 ? [bytes / 1e6, "MB"] : [bytes / 1e9, "GB"];
  return `${size < 10 ? size.toFixed(1) : Math.round(size)} ${unit}`;
}

export function timeOf(made) {
  const time = made ? Date.parse(made.replace(/([+-]\d\d)(\d\d)$/, "$1:$2")) : NaN;
  return Number.isNaN(time) ? null : time;
}

export function whenText(made, language) {
  const time = timeOf(made);
  if (time === null) return made || "–";
  // In the manner of the reader's country, where the language of the page is that of the browser.
  const manner = navigator.languages?.find((one) => one.startsWith(language)) || language;
  return new Intl.DateTimeFormat(manner, { dateStyle: "medium", timeStyle: "short" }).format(time);
}

export function statusMark(status, t) {
  if (!status) return element("span", { class: "status", text: t("records.reading") });
  return element("span", { class: "status", "data-status": status },
    element("i", { "aria-hidden": "true", text: SIGNS[status] ?? "" }), element("span", { text: t.or(`records.status.${status}`, status) }));
}

// Whether a record has steps that can be followed, and not only a report.
export function isRun(entry) {
  return RUNS.includes(entry.kind) || entry.status === "being written";
}

// The folder that a record stands in, without its name; nothing for the first folder.
export function folderOf(entry) {
  const cut = entry.path.lastIndexOf("/");
  return cut < 0 ? "" : entry.path.slice(0, cut + 1);
}
