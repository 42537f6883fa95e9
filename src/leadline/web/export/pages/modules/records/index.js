// The records that were chosen for the site: their list, and one of them as its report.
import { element } from "../elements.js";

export function mount(holder, context) {
  const { t, api } = context;
  let gone = false;
  holder.append(element("p", { class: "message", text: t("word.loading") }));
  api.records().then((records) => {
    if (gone) return;
    const record = records.find((one) => one.id === context.address.id);
    holder.replaceChildren(context.address.id ? reportNode(record, context) : listNode(records, context));
  }).catch((error) => {
    if (!gone) holder.replaceChildren(element("p", { class: "message", role: "alert", text: error.message }));
  });
  return () => {
    gone = true;
  };
}

function listNode(records, { t }) {
  const body = element("div", { class: "static-records" },
    element("h1", { text: t("view.records") }),
    element("p", { class: "soft", text: t(records.length ? "export.records" : "export.noRecords") }));
  const rows = records.map((record) => ({ record, node: rowNode(record, t) }));
  if (rows.length > 1) {
    const find = element("input", {
      type: "search", "aria-label": t("export.find"), placeholder: t("export.find"),
      oninput: () => rows.forEach(({ record, node }) => {
        node.hidden = !textOf(record).includes(find.value.trim().toLowerCase());
      }),
    });
    body.append(find);
  }
  body.append(element("ul", {}, ...rows.map(({ node }) => node)));
  return body;
}

function textOf(record) {
  return [record.name, record.kind, record.status, record.verdict?.sentence].join(" ").toLowerCase();
}

function rowNode(record, t) {
  const level = record.verdict?.level || "";
  const name = record.page
    ? element("a", { href: `#/record/${encodeURIComponent(record.id)}`, text: record.name })
    : element("b", { text: record.name });
  return element("li", { class: "card", "data-level": level },
    element("p", { class: "record-name" }, name, " ",
      element("span", { class: "soft", text: [record.kind, record.made.slice(0, 10), record.status === "finished" ? "" : record.status].filter(Boolean).join(" · ") })),
    element("p", {}, level ? element("b", { text: `${t(`level.${level}`)}: ` }) : null, record.verdict?.sentence || ""));
}

function reportNode(record, { t, api }) {
  const back = element("a", { href: "#/records", text: `← ${t("view.records")}` });
  if (!record?.page) {
    return element("div", { class: "message" }, element("p", { text: t("export.noRecord") }), back);
  }
  const address = api.reportAddress([record.id]);
  return element("div", { class: "static-report" },
    element("p", {}, back, " · ", element("a", { href: address, target: "_blank", rel: "noopener", text: t("export.alone") })),
    element("iframe", { class: "whole", title: record.name, src: address }));
}
