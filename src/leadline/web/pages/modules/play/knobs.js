// The table of knobs: one row for each, with a column for each design. Rows that differ stand out.
import { about } from "../about.js";
import { element } from "../elements.js";
import { control } from "./controls.js";

export function knobLabel(knob, t) {
  return t.or(`knob.${knob.name}`, knob.label || knob.name);
}

// What a knob does, for who knows only what a neural network is.
export function knobAbout(knob, t) {
  const text = knob.about || "";
  return t.or(`knob.${knob.name}.about`, text) || text || t("play.noAbout");
}

// `onChange(side, name, value, live)`; returns { root, set(designs), fail(side, name, reason) }.
// `offered(design, name)`, where there is one, says which values a knob may have.
export function knobTable(knobs, sides, { t, onChange, head, offered }) {
  const rows = new Map();
  const body = element("div", { class: "knobs" },
    offered ? element("p", { class: "limits soft", text: t("play.limited") }) : null, head);
  for (const knob of knobs) {
    const label = knobLabel(knob, t);
    const cells = {};
    const row = element("div", { class: "knob", "data-knob": knob.name },
      element("div", { class: "knob-name" },
        element("span", { text: label }),
        about(label, () => knobAbout(knob, t), t("chart.about", { title: label }))));
    for (const side of sides) {
      cells[side] = control(knob, {
        t,
        label: sides.length > 1 ? t("play.knobOf", { knob: label, side: side.toUpperCase() }) : label,
        onChange: (value, live) => onChange(side, knob.name, value, live),
      });
      cells[side].root.classList.add("cell", side);
      row.append(cells[side].root);
    }
    rows.set(knob.name, { row, cells });
    body.append(row);
  }
  return {
    root: body,
    set: (designs) => {
      for (const [name, { row, cells }] of rows) {
        for (const side of sides) {
          if (offered) cells[side].limit(offered(designs[side], name));
          cells[side].set(designs[side][name]);
        }
        row.classList.toggle("differs", sides.length > 1 && designs.a[name] !== designs.b[name]);
      }
    },
    // Shows a reason beside a knob; false where the table has no such knob.
    fail: (side, name, reason) => {
      for (const [one, { cells }] of rows) cells[side].fail(one === name ? reason : "");
      return rows.has(name);
    },
  };
}
