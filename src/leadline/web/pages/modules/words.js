// The words of the page in the language of the reader. What has no word in it is shown in English.

export const LANGUAGES = { en: "English", zh: "中文", ru: "Русский" };
const KEY = "leadline-language";

export function preferredLanguage() {
  let kept = null;
  try {
    kept = localStorage.getItem(KEY);
  } catch { /* no storage: the language of the browser */ }
  // An exported site may have been made for readers of one language.
  const wishes = [kept, document.documentElement.dataset.language, ...(navigator.languages || [])].filter(Boolean);
  for (const wish of wishes) {
    const code = wish.slice(0, 2).toLowerCase();
    if (code in LANGUAGES) return code;
  }
  return "en";
}

export function keepLanguage(code) {
  try {
    localStorage.setItem(KEY, code);
  } catch { /* kept for this visit only */ }
}

// Returns t: t("play.afterSteps", { n: 3 }) puts 3 where "{n}" stands. t.or(key, text) is `text` where the
// language has no word for the key.
export function loadWords(api, code) {
  return wordsOf(api, code);
}

async function wordsOf(api, code) {
  const english = await api.words("en");
  const chosen = code === "en" ? english : await api.words(code);
  const fill = (text, values) =>
    text.replace(/\{(\w+)\}/g, (hole, name) => (values && name in values ? String(values[name]) : hole));
  const t = (key, values) => fill(chosen[key] ?? english[key] ?? key, values);
  t.or = (key, text) => (key in chosen ? chosen[key] : text);
  t.language = code;
  return t;
}
