// The list of records: search, filter, order, tick several to see them on one page.
import { element, freshId, setText } from "../elements.js";
import { addressText } from "../state.js";
import { inOrder, LEVELS, matches, ORDERS, STATUSES } from "./choosing.js";
import { kindText } from "./entry.js";
import { recordRow } from "./row.js";
import { followShelf } from "./shelf.js";

const MOST = 8; // more lines than that cannot be told apart; the server refuses them, too
const COLUMNS = ["name", "verdict", "kind", "when", "size", "state"];

export function recordList(holder, { api, t, address, session, language, onAddress }) {
  let entries = new Map();
  let known = false;
  const rows = new Map();
  const ticked = new Set();

  const count = element("p", { class: "soft", "aria-live": "polite", text: t("word.loading") });
  const connection = element("p", { class: "connection", role: "status", hidden: true });
  const search = element("input", { type: "search", placeholder: t("records.searchHint"), oninput: turned });
  const level = choice("level", ["", ...LEVELS], (name) => t(name ? `records.level.${name}` : "records.all"));
  const status = choice("status", ["", ...STATUSES], (name) => t(name ? `records.status.${name}` : "records.all"));
  const order = choice("order", ORDERS, (name) => t(`records.order.${name}`));
  const body = element("tbody", { role: "rowgroup" });
  const table = element("table", { class: "record-table", role: "table", "aria-label": t("view.records"), hidden: true },
    element("thead", { role: "rowgroup" }, element("tr", { role: "row" },
      element("th", { role: "columnheader", scope: "col" }, element("span", { class: "unseen", text: t("records.column.tick") })),
      ...COLUMNS.map((name) => element("th", { role: "columnheader", scope: "col", class: name, text: t(`records.column.${name}`) })))),
    body);
  const nothing = element("div", { class: "nothing", hidden: true });
  const tickedText = element("p", { "aria-live": "polite" });
  const overlay = element("button", { type: "button", class: "primary", text: t("records.overlay"), onclick: () => {
    location.hash = addressText("record", [...ticked].join(","), {});
  } });
  const bar = element("div", { class: "ticked", role: "region", "aria-label": t("records.overlay"), hidden: true },
    tickedText, overlay, element("button", { type: "button", text: t("records.untick"), onclick: untick }));

  holder.append(element("div", { class: "records" },
    element("header", { class: "records-head" }, element("h1", { text: t("view.records") }),
      session.folder ? element("code", { class: "place", text: session.folder }) : null, count),
    element("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
      labelled(t("records.search"), search), level.root, status.root, order.root),
    connection, table, nothing, bar));

  function labelled(text, field) {
    const id = freshId("field");
    field.id = id;
    return element("div", { class: "field" }, element("label", { for: id, text }), field);
  }

  function choice(name, values, word) {
    const field = element("select", { onchange: turned }, ...values.map((one) => element("option", { value: one, text: word(one) })));
    return { field, root: labelled(t(`records.${name}`), field) };
  }

  const wish = () => ({ search: search.value.trim(), level: level.field.value, status: status.field.value });

  function turned() {
    const stated = { q: search.value.trim(), level: level.field.value, status: status.field.value, order: order.field.value === ORDERS[0] ? "" : order.field.value };
    address.replace(Object.fromEntries(Object.entries(stated).filter(([, value]) => value)));
    draw();
  }

  function readAddress() {
    const query = address.read();
    search.value = query.get("q") || "";
    for (const [name, { field }] of [["level", level], ["status", status], ["order", order]]) {
      field.value = query.get(name) || "";
      if (field.selectedIndex < 0) field.selectedIndex = 0;
    }
    draw();
  }

  function draw() {
    if (!known) return;
    const shown = inOrder([...entries.values()].filter((entry) => matches(entry, wish(), kindText(entry.kind, t))), order.field.value);
    for (const [id, row] of rows) {
      if (!entries.has(id)) {
        row.root.remove();
        rows.delete(id);
        ticked.delete(id);
      }
    }
    const nodes = shown.map((entry) => {
      if (!rows.has(entry.id)) rows.set(entry.id, recordRow(entry, { t, language, onTick: (flag) => tick(entry.id, flag) }));
      rows.get(entry.id).update(entry);
      return rows.get(entry.id).root;
    });
    place(nodes);
    const writing = shown.filter((entry) => entry.status === "being written").length;
    setText(count, [
      shown.length === entries.size ? t(entries.size === 1 ? "records.countOne" : "records.count", { n: entries.size }) : t("records.countOf", { n: shown.length, all: entries.size }),
      writing ? t("records.writing", { n: writing }) : ""].filter(Boolean).join(" · "));
    table.hidden = !shown.length;
    nothing.hidden = Boolean(shown.length);
    if (!shown.length) sayNothing();
    drawTicked();
  }

  // Elements are moved only where the order changed: what is moved loses the focus.
  function place(nodes) {
    const present = [...body.children];
    if (present.length === nodes.length && present.every((node, at) => node === nodes[at])) return;
    const focus = document.activeElement;
    body.replaceChildren(...nodes);
    if (focus && body.contains(focus)) focus.focus({ preventScroll: true });
  }

  function sayNothing() {
    const kind = entries.size ? "filtered" : "empty";
    if (nothing.dataset.kind === kind) return;
    nothing.dataset.kind = kind;
    if (kind === "filtered") {
      nothing.replaceChildren(element("p", { text: t("records.noMatch") }),
        element("button", { type: "button", text: t("records.showAll"), onclick: () => {
          search.value = "";
          level.field.value = status.field.value = "";
          turned();
          search.focus();
        } }));
      return;
    }
    const commands = [
      ["records.empty.measure", "leadline measure gpt2 -o gpt2.leadline"],
      ["records.empty.train", "leadline train --layers -o run.leadline"],
      ["records.empty.sweep", "leadline sweep depth=2,4,8 -o sweep.leadline"],
      ["records.empty.watch", "ll.watch(model, optimizer, \"run.leadline\")"],
    ];
    nothing.replaceChildren(element("p", { class: "nothing-title", text: t("records.empty") }),
      element("dl", {}, ...commands.flatMap(([key, text]) => [element("dt", { text: t(key) }), element("dd", {}, element("code", { text }))])),
      element("p", { class: "soft", text: t("records.empty.then") }));
  }

  function tick(id, flag) {
    if (flag) ticked.add(id);
    else ticked.delete(id);
    drawTicked();
  }

  function untick() {
    ticked.forEach((id) => rows.get(id)?.tick(false));
    ticked.clear();
    drawTicked();
    search.focus();
  }

  function drawTicked() {
    bar.hidden = !ticked.size;
    const many = ticked.size > MOST;
    overlay.disabled = many || ticked.size < 2;
    setText(tickedText, many ? t("records.tooMany", { n: ticked.size, most: MOST }) : t(ticked.size < 2 ? "records.oneTicked" : "records.ticked", { n: ticked.size }));
  }

  const shelf = followShelf(api, (next, state, reason) => {
    entries = next;
    known = true;
    connection.hidden = state === "open";
    connection.replaceChildren(...(state === "lost" ? [t("records.lost")] : state === "gone"
      ? [element("span", { text: `${t("server.gone")}. ${reason} ` }), element("button", { type: "button", text: t("server.again"), onclick: () => shelf.again() })] : []));
    draw();
  });
  const forget = onAddress(readAddress);
  readAddress();
  return () => {
    forget();
    shelf.end();
  };
}
