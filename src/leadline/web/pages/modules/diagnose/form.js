// What is asked for: a model of some kind, a text, and whether the remedy is tried.
import { element, freshId, setText } from "../elements.js";

export const KINDS = ["hub", "folder", "gguf", "random", "recipe"];

// Calls `onAsk(request)` and `onStop()`. Returns { root, fill(request), busy(flag), values(), fail(text) }.
export function diagnoseForm({ t, onAsk, onStop }) {
  const ids = { model: freshId("model"), hint: freshId("hint"), text: freshId("text"), apply: freshId("apply"), reason: freshId("reason") };
  const radios = KINDS.map((name) => element("input", {
    type: "radio", name: "kind", value: name, id: freshId("kind"), onchange: () => turn(name), checked: name === KINDS[0],
  }));
  const model = element("input", {
    type: "text", id: ids.model, autocomplete: "off", autocapitalize: "off", spellcheck: "false", required: true, maxlength: 1000, "aria-describedby": `${ids.hint} ${ids.reason}`,
    oninput: () => fail(""),
  });
  const label = element("label", { for: ids.model });
  const hint = element("p", { class: "soft small", id: ids.hint });
  const reason = element("p", { class: "reason", id: ids.reason, role: "alert" });
  const text = element("textarea", { id: ids.text, rows: 2, maxlength: 4000 });
  const apply = element("input", { type: "checkbox", id: ids.apply });
  const begin = element("button", { type: "submit", class: "primary", text: t("diagnose.start") });
  const stop = element("button", { type: "button", text: t("diagnose.stop"), hidden: true, onclick: () => onStop() });
  const root = element("form", { class: "diagnose-form card", novalidate: true, onsubmit: (event) => {
    event.preventDefault();
    if (!model.value.trim()) {
      fail(t("diagnose.noModel"));
      model.focus();
      return;
    }
    fail("");
    onAsk(values());
  } },
  element("fieldset", { class: "kinds" }, element("legend", { text: t("diagnose.kind") }),
    ...radios.map((radio) => element("label", { for: radio.id }, radio, element("span", { text: t(`diagnose.kind.${radio.value}`) })))),
  element("div", { class: "field" }, label, model, hint, reason),
  element("div", { class: "field" }, element("label", { for: ids.text, text: t("diagnose.text") }), text,
    element("p", { class: "soft small", text: t("diagnose.text.about") })),
  element("p", { class: "check" }, apply, element("label", { for: ids.apply, text: t("diagnose.apply") })),
  element("p", { class: "diagnose-buttons" }, begin, stop));

  function turn(name) {
    setText(label, t(`diagnose.model.${name}`));
    setText(hint, t(`diagnose.hint.${name}`));
    model.placeholder = { hub: "owner/name", folder: "/path/to/model", gguf: "/path/to/model.gguf", random: "gpt2", recipe: "default" }[name];
    fail("");
  }

  const kind = () => radios.find((radio) => radio.checked)?.value || KINDS[0];
  const values = () => ({ model: model.value.trim(), kind: kind(), text: text.value, apply: apply.checked });

  function fail(words) {
    setText(reason, words);
    if (words) model.setAttribute("aria-invalid", "true");
    else model.removeAttribute("aria-invalid");
  }

  turn(KINDS[0]);
  return {
    root, values, fail,
    fill: (request) => {
      model.value = request.model || "";
      text.value = request.text || "";
      apply.checked = Boolean(request.apply);
      const name = KINDS.includes(request.kind) ? request.kind : KINDS[0];
      radios.forEach((radio) => {
        radio.checked = radio.value === name;
      });
      turn(name);
    },
    busy: (flag) => {
      begin.disabled = flag;
      stop.hidden = !flag;
    },
  };
}
