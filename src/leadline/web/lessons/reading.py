"""Reads the lessons' files and refuses what is wrong with them, by file and key.

The English file of a lesson holds everything; the files of other languages hold its texts alone,
by the same keys:

    of = "5f1c0a92"              the English that it was made from, as a digest
    title = "..."
    answer = "..."

    [adding]                     the name of a part
    heading = "..."
    body = "..."

When the English changes, its digest does, and the lesson is refused until somebody has looked at
the translation again. Formulas and {numbers} of a text are those of its English.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from leadline.errors import CatalogError, UnknownName
from leadline.web.lessons.lesson import (
    CURVES,
    KINDS,
    KNOBS,
    LANGUAGES,
    READS,
    SIDES,
    Lesson,
    LessonNumber,
    LessonPart,
)

__all__ = ["english_digest", "english_lesson", "lesson_ids", "read_lesson", "translated_lesson"]

TEXTS = Path(__file__).with_name("texts")
_NAME = re.compile(r"[a-z][a-z0-9-]*")
_PLACE = re.compile(r"\{([a-z][a-z0-9_]*)\}")
_FORMULA = re.compile(r"\$[^$]*\$")
_CHECK = ("side", "turned", "curve", "read", "at_most", "at_least")


@cache
def lesson_ids() -> tuple[str, ...]:
    """The lessons in their order, by the names of their files without the number."""
    return tuple(path.stem.split("-", 1)[1] for path in sorted((TEXTS / "en").glob("*.toml")))


@cache
def read_lesson(name: str, language: str) -> Lesson:
    """Read a lesson in one language."""
    if language not in LANGUAGES:
        raise UnknownName("language", language, LANGUAGES)
    if name not in lesson_ids():
        raise UnknownName("lesson", name, lesson_ids())
    file = f"{lesson_ids().index(name) + 1:02}-{name}.toml"
    path = TEXTS / "en" / file
    lesson = english_lesson(name, _table(path), path)
    if language == "en":
        return lesson
    path = TEXTS / language / file
    return translated_lesson(lesson, language, _table(path), path)


def english_digest(lesson: Lesson) -> str:
    """A short digest of every text of a lesson."""
    texts = "\n".join(f"{key}={text}" for key, text in lesson.strings())
    return hashlib.sha256(texts.encode()).hexdigest()[:8]


def english_lesson(name: str, table: Mapping[str, Any], path: Path) -> Lesson:
    """The lesson of an English file."""
    _keys(table, ("title", "answer", "parts", "numbers"), path, "the file")
    parts = tuple(_part(entry, path) for entry in table.get("parts", ()))
    names = [part.name for part in parts]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise CatalogError(f"{path}: two parts are called {twice[0]!r}; rename one of them.")
    numbers = {
        key: _number(key, entry, parts, path) for key, entry in table.get("numbers", {}).items()
    }
    lesson = Lesson(
        name,
        "en",
        _string(table, "title", path, "title"),
        _string(table, "answer", path, "answer"),
        parts,
        numbers,
    )
    written = {place for _, text in lesson.strings() for place in _PLACE.findall(_bare(text))}
    if odd := sorted(written ^ set(numbers)):
        raise CatalogError(
            f"{path}: {{{odd[0]}}} stands in a text and not under [numbers], or the other way round."
        )
    return lesson


def translated_lesson(
    english: Lesson, language: str, table: Mapping[str, Any], path: Path
) -> Lesson:
    """The lesson with the texts of another language's file; every one must be there."""
    digest = english_digest(english)
    if table.get("of") != digest:
        raise CatalogError(
            f"{path}: the translation was made from another English text. Look at it again, then "
            f'write of = "{digest}".'
        )
    names = [part.name for part in english.parts]
    _keys(table, ("of", "title", "answer", *names), path, "the file")
    parts: list[LessonPart] = []
    for part in english.parts:
        entry = table.get(part.name, {})
        _keys(entry, tuple(part.texts), path, part.name)
        texts = {key: _string(entry, key, path, f"{part.name}.{key}") for key in part.texts}
        parts.append(replace(part, texts=texts))
    lesson = replace(
        english,
        language=language,
        title=_string(table, "title", path, "title"),
        answer=_string(table, "answer", path, "answer"),
        parts=tuple(parts),
    )
    for (key, text), (_, other) in zip(english.strings(), lesson.strings(), strict=True):
        _agree(text, other, path, key)
    return lesson


# --- parts -----------------------------------------------------------------------------------


def _part(entry: Mapping[str, Any], path: Path) -> LessonPart:
    kind, name = entry.get("kind"), entry.get("name")
    if kind not in KINDS:
        raise CatalogError(
            f"{path}: {kind!r} is no kind of part; choose one of {', '.join(KINDS)}."
        )
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise CatalogError(f"{path}: a part is called {name!r}; use small letters and hyphens.")
    shape = KINDS[kind]
    texts = (*shape.texts, *(key for key in shape.texts_if_any if key in entry))
    facts = (*shape.facts, *(key for key in shape.facts_if_any if key in entry))
    _keys(entry, ("kind", "name", *texts, *facts), path, name)
    if missing := [key for key in (*texts, *facts) if key not in entry]:
        raise CatalogError(f"{path}, {name}: the {kind} has no {missing[0]}; add it.")
    part = LessonPart(
        kind,
        name,
        {key: _string(entry, key, path, f"{name}.{key}") for key in texts},
        {key: entry[key] for key in facts},
    )
    if kind == "figure":
        _check_figure(part, path)
    return part


def _check_figure(part: LessonPart, path: Path) -> None:
    facts, place = part.facts, part.name
    if ("other" in facts) != ("other_label" in part.texts):
        raise CatalogError(f"{path}, {place}: a second design has a label, and only it has one.")
    if any("$" in text or "**" in text for text in part.texts.values()):
        raise CatalogError(f"{path}, {place}: the texts of a figure are plain, without formulas.")
    for side in SIDES:
        _among(facts.get(side, {}), KNOBS, path, f"{place}.{side}")
    _among(facts["knobs"], KNOBS, path, f"{place}.knobs")
    _among(facts["curves"], CURVES, path, f"{place}.curves")
    if not 1 <= len(facts["knobs"]) <= 2 or not 1 <= len(facts["curves"]) <= 2:
        raise CatalogError(f"{path}, {place}: a figure has one or two knobs and curves.")
    if not facts["checks"]:
        raise CatalogError(f"{path}, {place}.checks: nothing holds the caption to the truth.")
    for check in facts["checks"]:
        _keys(check, _CHECK, path, f"{place}.checks")
        _check_read(check, facts, path, f"{place}.checks")
        if not {"at_most", "at_least"} & set(check):
            raise CatalogError(f"{path}, {place}.checks: a check has no at_most and no at_least.")


def _number(
    name: str, entry: Mapping[str, Any], parts: Sequence[LessonPart], path: Path
) -> LessonNumber:
    place = f"numbers.{name}"
    _keys(entry, tuple(one.name for one in fields(LessonNumber))[1:], path, place)
    number = LessonNumber(name, **entry)
    if bool(number.claim) == bool(number.figure):
        raise CatalogError(f"{path}, {place}: a number is that of a claim or that of a figure.")
    if number.claim:
        if not number.number:
            raise CatalogError(f"{path}, {place}: which number of {number.claim!r}? Name it.")
        return number
    figures = {part.name: part for part in parts if part.kind == "figure"}
    if number.figure not in figures:
        raise UnknownName("figure", number.figure, figures)
    _check_read(vars(number), figures[number.figure].facts, path, place)
    if number.within <= 0:
        raise CatalogError(f"{path}, {place}: a measured number says within what share it holds.")
    return number


def _check_read(
    entry: Mapping[str, Any], figure: Mapping[str, Any], path: Path, place: str
) -> None:
    """Refuse a number that cannot be read from the figure."""
    side = entry.get("side", "base")
    if side not in SIDES or side not in figure:
        raise CatalogError(f"{path}, {place}: the figure has no side {side!r}.")
    _among([entry.get("curve")], figure["curves"], path, f"{place}.curve")
    _among([entry.get("read")], READS, path, f"{place}.read")
    _among(entry.get("turned", {}), figure["knobs"], path, f"{place}.turned")


# --- strings ---------------------------------------------------------------------------------


def _agree(text: str, other: str, path: Path, key: str) -> None:
    for what, one, two in (
        ("numbers", set(_PLACE.findall(_bare(text))), set(_PLACE.findall(_bare(other)))),
        ("formulas", set(_FORMULA.findall(text)), set(_FORMULA.findall(other))),
    ):
        if one != two:
            raise CatalogError(
                f"{path}, {key}: the translation has not the {what} of its English: "
                f"{', '.join(sorted(one ^ two))} only in one of them."
            )


def _bare(text: str) -> str:
    """The text without its formulas, whose braces are LaTeX."""
    return _FORMULA.sub("", text)


def _string(table: Mapping[str, Any], key: str, path: Path, place: str) -> str:
    text = table.get(key)
    if not isinstance(text, str) or not text.strip():
        raise CatalogError(f"{path}, {place}: the text is missing.")
    return text.strip()


def _keys(table: Mapping[str, Any], known: Sequence[str], path: Path, place: str) -> None:
    if odd := [key for key in table if key not in known]:
        raise CatalogError(
            f"{path}, {place}: there is no key {odd[0]!r}; known are {', '.join(known)}."
        )


def _among(names: Any, known: Sequence[str], path: Path, place: str) -> None:
    for name in names:
        if name not in known:
            raise CatalogError(f"{path}, {place}: {name!r} is none of {', '.join(known)}.")


def _table(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CatalogError(f"The lesson {path} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CatalogError(f"{path} is not valid TOML: {error}.") from error
