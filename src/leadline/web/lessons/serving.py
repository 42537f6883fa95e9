"""Lessons as the JSON that the page shows."""

from __future__ import annotations

import math
from typing import Any

from leadline.claims.page.words import number
from leadline.web.lessons.cards import card, ruling_of
from leadline.web.lessons.lesson import LessonNumber, LessonPart
from leadline.web.lessons.markup import blocks, formula, pieces
from leadline.web.lessons.reading import lesson_ids, read_lesson

__all__ = ["lesson_json", "lessons_json"]

WORDS_A_MINUTE = 180
"""How fast a text is read that has to be understood."""
MINUTES_AT_A_FIGURE = 1


def lessons_json(language: str) -> list[dict[str, Any]]:
    """The lessons in their order: id, title, and how many minutes each takes."""
    return [
        {"id": name, "title": read_lesson(name, language).title, "minutes": minutes(name)}
        for name in lesson_ids()
    ]


def lesson_json(name: str, language: str) -> dict[str, Any]:
    """One lesson with all its parts; `previous` and `next` are ids, or None at the ends."""
    lesson = read_lesson(name, language)
    shown = {key: _shown(one) for key, one in lesson.numbers.items()}
    names = lesson_ids()
    at = names.index(name)
    return {
        "id": name,
        "language": language,
        "number": at + 1,
        "of": len(names),
        "title": lesson.title,
        "minutes": minutes(name),
        "answer": blocks(filled(lesson.answer, shown)),
        "parts": [_part(part, shown, language) for part in lesson.parts],
        "previous": names[at - 1] if at else None,
        "next": names[at + 1] if at + 1 < len(names) else None,
    }


def minutes(name: str) -> int:
    """How long a lesson takes, by the words of its English and its figures."""
    lesson = read_lesson(name, "en")
    count = sum(len(text.split()) for _, text in lesson.strings())
    figures = sum(part.kind == "figure" for part in lesson.parts)
    return math.ceil(count / WORDS_A_MINUTE + MINUTES_AT_A_FIGURE * figures)


def filled(text: str, shown: dict[str, str]) -> str:
    """The text with its numbers; formulas, whose braces are LaTeX, are left alone."""
    written = text.split("$")
    for at in range(0, len(written), 2):
        for key, value in shown.items():
            written[at] = written[at].replace(f"{{{key}}}", value)
    return "$".join(written)


def _shown(one: LessonNumber) -> str:
    value = one.value
    if one.claim:
        values = (ruling_of(one.claim).numbers or {})[one.number]
        value = sum(values) / len(values)
    if one.decimals >= 0:
        # Zero has no sign, whichever side it was rounded from.
        return f"{round(value, one.decimals) + 0.0:.{one.decimals}f}".replace("-", "−")
    return number(value, digits=one.digits)


def _part(part: LessonPart, shown: dict[str, str], language: str) -> dict[str, Any]:
    texts = {key: filled(text, shown) for key, text in part.texts.items()}
    written: dict[str, Any] = {"kind": part.kind, "name": part.name}
    if part.kind == "text":
        return {**written, "heading": texts.get("heading"), "blocks": blocks(texts["body"])}
    if part.kind == "formula":
        return {
            **written,
            **formula(part.facts["latex"], display=True),
            "words": pieces(texts["words"]),
        }
    if part.kind == "claim":
        return {**written, "lead": pieces(texts["lead"]), **card(part.facts["claim"], language)}
    if part.kind == "question":
        return {
            **written,
            "question": pieces(texts["question"]),
            "answer": blocks(texts["answer"]),
        }
    return {
        **written,
        "heading": texts["heading"],
        "base": part.facts["base"],
        "other": part.facts.get("other"),
        "labels": [texts["base_label"], texts.get("other_label")],
        "knobs": part.facts["knobs"],
        "curves": part.facts["curves"],
        "try": pieces(texts["try"]),
        "caption": " ".join(texts["see"].split()),
    }
