// One record: how it grows, step by step, and its report; or the report of several on one page.
import { element, setText } from "../elements.js";
import { levelMark } from "../findings.js";
import { isRun, kindText, statusMark, whenText } from "./entry.js";
import { liveRun } from "./live.js";
import { followShelf } from "./shelf.js";

const PARTS = ["steps", "report"];

export function recordPage(holder, context, ids) {
  const { api, t, address, language, onAddress } = context;
  const several = ids.length > 1;
  let entry = null;
  let part = "";
  let live = null;
  let shown = "";
  let writing = false;

  const title = element("h1", { text: several ? t("records.several", { n: ids.length }) : t("word.loading") });
  const about = element("p", { class: "record-about" });
  const said = element("p", { class: "record-said" });
  const tabs = element("div", { class: "segmented", role: "group", "aria-label": t("records.parts"), hidden: true },
    ...PARTS.map((name) => element("button", { type: "button", "data-part": name, text: t(`records.part.${name}`), onclick: () => turn(name) })));
  const apart = element("a", { class: "apart", target: "_blank", rel: "noopener", href: api.reportAddress(ids), text: t("records.apart") });
  const body = element("div", { class: "record-body" });
  const message = element("p", { class: "connection", role: "status", hidden: true });
  holder.append(element("div", { class: "record" },
    element("header", { class: "record-head" },
      element("p", { class: "back" }, element("a", { href: "#/records", text: t("records.back") })),
      title, about, said, element("div", { class: "record-tools" }, tabs, apart)),
    message, body));

  function turn(name) {
    const query = address.read();
    query.set("part", name);
    address.replace(query);
    draw();
  }

  function showReport() {
    body.replaceChildren(element("iframe", {
      class: "report", title: several ? title.textContent : t("records.reportOf", { name: entry?.name ?? "" }), src: api.reportAddress(ids),
    }));
  }

  function leaveLive() {
    live?.destroy();
    live = null;
  }

  // Several are one report, which a damaged one among them would leave empty.
  function drawSeveral() {
    const now = entry.status === "damaged" ? "damaged" : "report";
    if (now === shown) return;
    shown = now;
    setText(title, t("records.several", { n: ids.length }));
    apart.hidden = now === "damaged";
    said.replaceChildren(...(now === "damaged" ? [element("span", { text: `${entry.name}: ${entry.verdict?.sentence ?? ""}` })] : []));
    body.replaceChildren();
    if (now === "report") showReport();
  }

  // What stands below the head changes with the part alone; a run goes on by itself.
  function draw() {
    if (!entry) return;
    if (several) {
      drawSeveral();
      return;
    }
    const damaged = entry.status === "damaged";
    const run = isRun(entry) && !damaged;
    const wish = address.read().get("part");
    part = !run ? "report" : PARTS.includes(wish) ? wish : entry.status === "being written" || part === "steps" ? "steps" : "report";
    setText(title, entry.name);
    title.title = entry.path;
    // Step by step the run itself says how it stands.
    about.replaceChildren(...[part === "steps" ? null : statusMark(entry.status, t), entry.kind && element("span", { text: kindText(entry.kind, t) }),
      entry.made && element("span", { text: whenText(entry.made, language) }), element("code", { text: entry.path })].filter(Boolean));
    const level = entry.verdict?.level;
    said.hidden = part === "steps" && !damaged;
    said.replaceChildren(...[levelMark(level, t, level === "healthy" ? t("records.healthy") : undefined),
      element("span", { text: entry.verdict?.sentence || t("records.reading") })].filter(Boolean));
    tabs.hidden = !run;
    apart.hidden = damaged;
    [...tabs.children].forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.part === part)));
    const now = damaged ? "damaged" : part;
    // A run that was closed and is written again is followed again.
    const begins = entry.status === "being written" && !writing;
    writing = entry.status === "being written";
    if (begins && shown === "steps" && now === "steps" && live.ended()) live.again(entry);
    if (now === shown) return;
    shown = now;
    leaveLive();
    body.replaceChildren();
    if (now === "report") showReport();
    if (now === "steps") live = liveRun(body, context, entry);
  }

  function missing() {
    entry = null;
    shown = "";
    leaveLive();
    setText(title, t("records.gone"));
    about.replaceChildren();
    said.replaceChildren();
    tabs.hidden = apart.hidden = true;
    body.replaceChildren();
  }

  const shelf = followShelf(api, (entries, state, reason) => {
    message.hidden = state === "open";
    message.replaceChildren(...(state === "lost" ? [t("records.lost")] : state === "gone"
      ? [element("span", { text: `${t("server.gone")}. ${reason} ` }), element("button", { type: "button", text: t("server.again"), onclick: () => shelf.again() })] : []));
    if (state === "gone") return;
    const chosen = ids.map((id) => entries.get(id) || null);
    entry = chosen.includes(null) ? null : chosen.find((one) => one.status === "damaged") || chosen[0];
    if (entry) draw();
    else missing();
  });
  const forget = onAddress(draw);
  return () => {
    forget();
    shelf.end();
    leaveLive();
  };
}
