// The sentence of a verdict in the language of the reader.

// The engine sends its English sentence, and the phrases that it is made of. Where the page has no word
// for one of them, or a rule speaks in its own words, the English sentence stands.
export function verdictText(verdict, t) {
  const { about = [], said = [], sentence } = verdict;
  const known = [...about, ...said].every(({ key }) => t.or(`verdict.${key}`, null));
  if (!said.length || !known || !t.or("verdict.sentence", null)) return sentence || "";
  const join = (phrases, sign) => phrases.map(({ key, values }) => t(`verdict.${key}`, values)).join(t.or(sign, ", "));
  return t.or("verdict.sentence", "").replace("{about}", join(about, "verdict.comma")).replace("{said}", join(said, "verdict.semicolon"));
}
