// The stories: a row of chips, and the text of the story that is told.
import { element } from "../elements.js";

// `onChoose(preset)`; returns { root, set(preset, changed, unknown) }, where `unknown` is what of the
// address was left out.
export function presetRow(presets, { t, quantities, onChoose }) {
  const left = element("strong", { class: "left-out", hidden: true });
  const text = element("span", {});
  const look = element("span", { class: "look" });
  const changed = element("button", { type: "button", class: "quiet", text: t("play.again"), hidden: true });
  const story = element("p", { class: "story", "aria-live": "polite" }, left, " ", text, " ", look, changed);
  let current = null;
  changed.addEventListener("click", () => onChoose(current));
  const chips = presets.map((preset) => element("button", {
    type: "button", class: "chip", "aria-pressed": "false", text: t.or(`preset.${preset.id}`, preset.title), onclick: () => onChoose(preset),
  }));
  const root = element("div", { class: "stories" },
    element("div", { class: "chips", role: "group", "aria-label": t("play.stories") },
      element("span", { class: "chips-name", "aria-hidden": "true", text: t("play.stories") }), ...chips), story);
  return {
    root,
    set: (preset, isChanged, unknown = []) => {
      current = preset;
      chips.forEach((chip, at) => chip.setAttribute("aria-pressed", String(presets[at] === preset)));
      left.hidden = !unknown.length;
      left.textContent = unknown.length ? t("play.unknown", { names: unknown.join(", ") }) : "";
      text.textContent = preset ? t.or(`preset.${preset.id}.story`, preset.story) : t("play.noStory");
      const names = watchedNames(preset, quantities).map((name) => quantities.find((one) => one.name === name));
      look.textContent = names.length
        ? t("play.lookAt", { curves: names.map((one) => t.or(`quantity.${one.name}`, one.label)).join(", ") }) : "";
      changed.hidden = !preset || !isChanged;
    },
  };
}

// The curves that a story tells of: their names stand in `watch`, alone or in a sentence.
export function watchedNames(preset, quantities) {
  if (!preset?.watch) return [];
  const text = String(preset.watch).toLowerCase();
  return quantities.filter((one) => text.includes(one.name.toLowerCase()) || text.includes(one.label.toLowerCase())).map((one) => one.name);
}
