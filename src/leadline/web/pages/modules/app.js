// The shell: token, session, language, theme, and the view that the address names.
//
// A view is a module with mount(holder, context), which returns what takes it away again. Its context:
//   t(key, values)      words of the page; t.or(key, text) is `text` where there is no such word
//   words, language     { t, language }, and the language again: "en", "zh" or "ru"
//   api                 everything that can be asked of the server (api.js)
//   session             what the server said of itself
//   charts              { lineChart, heatMap } (chart.js)
//   address             view, id, read(), replace(query), push(query), drag(query), join()
//   onAddress(callback) calls back when the query changes by a link or the back button
import { api, keepToken, takeToken } from "./api.js";
import { heatMap, lineChart } from "./chart.js";
import { setTheme, themeName } from "./colours.js";
import { element, mark } from "./elements.js";
import { readAddress, viewAddress } from "./state.js";
import { keepLanguage, LANGUAGES, loadWords, preferredLanguage } from "./words.js";
import { mount as mountClaims } from "./claims/index.js";
import { mount as mountDiagnose } from "./diagnose/index.js";
import { mount as mountLessons } from "./lessons/index.js";
import { mount as mountPlay } from "./play/index.js";
import { mount as mountRecords } from "./records/index.js";

const VIEWS = {
  play: mountPlay,
  records: mountRecords,
  record: mountRecords,
  diagnose: mountDiagnose,
  lessons: mountLessons,
  claims: mountClaims,
};
const TABS = ["play", "records", "diagnose", "lessons", "claims"];

const top = document.getElementById("top");
const main = document.getElementById("main");
let t = null;
let session = null;
let leave = null;
let current = "";

function link(view, chosen) {
  return element("a", { href: `#/${view}`, "aria-current": chosen ? "page" : null, text: t(`view.${view}`) });
}

function drawTop(view) {
  const chosen = view === "record" ? "records" : view;
  const languages = element("select", { "aria-label": t("top.language"), onchange: (event) => speak(event.target.value) },
    ...Object.entries(LANGUAGES).map(([code, name]) => element("option", { value: code, lang: code, text: name })));
  languages.value = t.language;
  const theme = element("button", {
    type: "button", class: "quiet", text: "◐", "aria-label": t("top.theme"),
    onclick: () => setTheme(themeName() === "dark" ? "light" : "dark"),
  });
  top.replaceChildren(element("div", {},
    element("a", { class: "brand", href: "#/play" }, mark(), "Leadline"),
    element("nav", { "aria-label": t("top.views") }, ...TABS.map((name) => link(name, name === chosen))),
    element("div", { class: "tools" }, languages, theme)));
}

async function speak(code) {
  keepLanguage(code);
  t = await loadWords(api, code);
  document.documentElement.lang = code === "zh" ? "zh-Hans" : code;
  document.getElementById("skip").textContent = t("top.skip");
  current = "";
  show();
}

// Shows the view of the address. A view that listens to its own query is not built again for it.
function show() {
  const { view, id } = readAddress();
  const name = Object.hasOwn(VIEWS, view) ? view : "play"; // and not "constructor"
  const place = `${name}/${id}`;
  if (place === current) {
    main.dispatchEvent(new CustomEvent("address"));
    return;
  }
  const first = current === "";
  current = place;
  leave?.();
  drawTop(name);
  document.title = `${t(`view.${name === "record" ? "records" : name}`)} · Leadline`;
  const holder = element("div", { class: `view view-${name}` });
  main.replaceChildren(holder);
  const address = viewAddress(name, id);
  const context = {
    api, session, address, t,
    words: { t, language: t.language },
    language: t.language,
    charts: { lineChart, heatMap },
    // Calls back when the query changed by the back button or a link; returns what ends it.
    onAddress: (callback) => {
      main.addEventListener("address", callback);
      return () => main.removeEventListener("address", callback);
    },
  };
  const unmount = VIEWS[name](holder, context);
  leave = () => {
    address.end();
    if (typeof unmount === "function") unmount();
  };
  if (!first) main.focus({ preventScroll: true });
}

// Without a token nothing can be asked: a sentence, and a field for the address that was printed.
function askForToken(reason) {
  leave?.();
  leave = null;
  const field = element("input", { type: "text", id: "token", autocomplete: "off", spellcheck: "false" });
  const form = element("form", {
    class: "message",
    onsubmit: (event) => {
      event.preventDefault();
      keepToken(field.value);
      start();
    },
  },
  element("h1", { text: t("token.title") }),
  element("p", { text: reason }),
  element("label", { for: "token", text: t("token.label") }),
  field,
  element("button", { type: "submit", text: t("token.open") }));
  top.replaceChildren(element("div", {}, element("a", { class: "brand", href: "#/play" }, mark(), "Leadline")));
  main.replaceChildren(form);
  field.focus();
}

async function start() {
  try {
    session = await api.session();
  } catch (error) {
    if (error.status === 401 || error.status === 403) return askForToken(t("token.missing"));
    main.replaceChildren(element("div", { class: "message", role: "alert" },
      element("h1", { text: t("server.gone") }), element("p", { text: error.message }),
      element("button", { type: "button", text: t("server.again"), onclick: start })));
    return;
  }
  current = "";
  show();
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address behind "#" names the view, not a place
  main.focus();
});
addEventListener("hashchange", () => session && show());
addEventListener("popstate", () => session && show());

takeToken();
loadWords(api, preferredLanguage()).then((words) => {
  t = words;
  document.documentElement.lang = t.language === "zh" ? "zh-Hans" : t.language;
  document.getElementById("skip").textContent = t("top.skip");
  return start();
});
