// The view of lessons: their list, and one lesson with the way to its neighbours.
import { element } from "../elements.js";
import { partNode } from "./parts.js";
import { blockNodes } from "./pieces.js";
import { sayIn } from "./words.js";

export function mount(holder, context) {
  const say = sayIn(context.language);
  const ends = [];
  const id = context.address.id;
  let gone = false;
  const wanted = id ? context.api.lesson(id, context.language) : context.api.lessons(context.language);
  wanted.then((found) => {
    if (gone) return;
    holder.replaceChildren(id ? lessonNode(found, context, say, ends) : listNode(found, say));
    if (id) window.scrollTo(0, 0);
  }).catch((error) => {
    if (gone) return;
    holder.replaceChildren(element("div", { class: "message", role: "alert" },
      element("p", { text: error.message }), element("a", { href: "#/lessons", text: say("all") })));
  });
  return () => {
    gone = true;
    ends.forEach((end) => end?.());
  };
}

function listNode(lessons, say) {
  return element("div", { class: "lessons" },
    element("h1", { text: say("title") }),
    element("p", { class: "soft", text: say("about") }),
    element("ol", { class: "lesson-list" }, ...lessons.map((one) => element("li", {},
      element("a", { class: "card", href: address(one.id) },
        element("span", { class: "lesson-title", text: one.title }),
        element("span", { class: "soft", text: say("minutes", { n: one.minutes }) }))))));
}

function lessonNode(lesson, context, say, ends) {
  return element("article", { class: "lesson" },
    element("p", { class: "soft" },
      element("a", { href: "#/lessons", text: say("all") }),
      ` · ${say("place", { n: lesson.number, of: lesson.of })} · ${say("minutes", { n: lesson.minutes })}`),
    element("h1", { text: lesson.title }),
    element("div", { class: "lesson-answer" }, ...blockNodes(lesson.answer)),
    ...lesson.parts.map((part) => partNode(part, context, say, ends)),
    element("nav", { class: "lesson-ways", "aria-label": say("title") },
      lesson.previous ? element("a", { rel: "prev", href: address(lesson.previous), text: `← ${say("previous")}` }) : null,
      lesson.next ? element("a", { rel: "next", href: address(lesson.next), text: `${say("next")} →` }) : null));
}

function address(id) {
  return `#/lessons/${encodeURIComponent(id)}`;
}
