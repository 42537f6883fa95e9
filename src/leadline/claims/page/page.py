"""The page of claims: one self-contained HTML file for learners, in several languages.

Everything stands in the file: style, script, formulas as MathML, pictures as SVG, and what its
words are in the other languages. The page makes no request; its content security policy forbids
every one and lets run only the two scripts whose SHA-256 it names. Without a script it can be
read in English.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from leadline.claims.claim import GROUPS, NOTES
from leadline.claims.page.article import SHAPES, article, badge, kind_of, right, sign
from leadline.claims.page.phrases import (
    ABOUT,
    HOW_TO_READ,
    INTRODUCTION,
    NOTHING_FITS,
    PLAYED,
    TITLE,
    WITHOUT_SCRIPT,
    note_phrase,
)
from leadline.claims.page.play import DECADES, DEEPEST, EXERCISE, POWERS, play
from leadline.claims.page.shapes import AXES, ELEVATION, UNIT_2D, UNIT_3D, tokens
from leadline.claims.page.words import LANGUAGES, Words, page_words, ruling_words
from leadline.claims.ruling import VERDICTS
from leadline.errors import InputError
from leadline.reading.show.shell import BRAND, FOOTER, page_asset, page_shell

if TYPE_CHECKING:
    from leadline.claims.ruling import Ruling

__all__ = ["claims_page", "page_words", "ruling_words"]

_IDS = (
    "main", "search", "note", "filters", "reset", "nothing", "theme", "exercise", "answer",
    "answers", "powers", "ellipse", "sphere", "leadline-data",
)  # fmt: skip
"""Addresses that the page uses itself, beside those of its chapters and pictures."""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")


def claims_page(
    rulings: Sequence[Ruling],
    *,
    languages: Mapping[str, Mapping[str, str]],
    code: Mapping[str, str],
    about: Mapping[str, Any],
) -> str:
    """The page as text. `languages` has a dictionary by English strings for each other language.

    `code` is the source of a claim's measurement by its name; `about` says with which seeds, when,
    with which versions and on what machine was measured; what is None or empty is left out.
    """
    _check(rulings, about)
    words = Words(languages)
    words.check([*page_words(), *(text for ruling in rulings for text in ruling_words(ruling))])
    chapters = {
        group: [ruling for ruling in rulings if ruling.claim.group == group] for group in GROUPS
    }
    body = (
        f"{_signs()}{_top(words, languages)}\n"
        f'<div class="frame">{_contents(words, chapters)}\n<main id="main">\n'
        f"{_head(words, rulings)}\n"
        + "\n".join(_chapter(words, group, found, code) for group, found in chapters.items())
        + f"\n{_about(words, about)}</main></div>\n"
        + words.page(FOOTER, tag="footer")
    )
    return page_shell(
        title=words.page(TITLE, tag="title"),
        body=body,
        styles=[page_asset("leadline.claims.page", "claims.css")],
        scripts=[page_asset("leadline.claims.page", "claims.js")],
        data={
            "languages": {code: LANGUAGES[code] for code in ("en", *languages)},
            "tables": words.tables,
            "tokens": tokens().tolist(),
            "elevation": ELEVATION,
            "units": [UNIT_2D, UNIT_3D, AXES],
            "powers": {"box": POWERS, "decades": DECADES, "deepest": DEEPEST},
        },
    )


def _check(rulings: Sequence[Ruling], about: Mapping[str, Any]) -> None:
    if not rulings:
        raise InputError("A page of claims needs at least one ruling, and none was given.")
    names = [ruling.claim.name for ruling in rulings]
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise InputError(f"The page was given two rulings on {', '.join(twice)}; give one of each.")
    own = re.compile(r"play-.*|" + "|".join([*GROUPS, *_IDS]))
    odd = [name for name in names if not _NAME.fullmatch(name) or own.fullmatch(name)]
    if odd:
        raise InputError(
            f"The name {odd[0]!r} cannot be an address in the page; use small letters and "
            "hyphens, and no word that the page uses itself."
        )
    unknown = sorted(set(about) - set(ABOUT))
    if unknown:
        raise InputError(
            f"The page cannot say {', '.join(unknown)} about the measurements; it knows "
            f"{', '.join(ABOUT)}."
        )


# --- frame -----------------------------------------------------------------------------------


def _signs() -> str:
    symbols = "".join(
        f'<symbol id="sign-{kind}" viewBox="0 0 16 16">{shape}</symbol>'
        for kind, shape in SHAPES.items()
    )
    return f'<svg class="symbols" aria-hidden="true">{symbols}</svg>'


def _top(words: Words, languages: Mapping[str, Mapping[str, str]]) -> str:
    buttons = "".join(
        f'<button type="button" lang="{code}" data-language="{code}" '
        f'aria-pressed="{str(code == "en").lower()}">{LANGUAGES[code]}</button>'
        for code in ("en", *languages)
    )
    label = "Switch between dark and light"
    theme = f'<button type="button" id="theme" {words.attributes(title=label, aria_label=label)}>◐</button>'
    skip = words.page("Skip to the claims", tag="a", more='class="skip" href="#main"')
    chosen = (
        f'<div class="segmented" role="group" {words.attributes(aria_label="Language")}>{buttons}</div>'
        if languages
        else ""
    )
    return (
        f'{skip}<header class="top"><div>{BRAND}'
        f'<div class="tools with">{chosen}{theme}</div></div></header>'
    )


def _contents(words: Words, chapters: Mapping[str, Sequence[Ruling]]) -> str:
    rows: list[str] = []
    for group, found in chapters.items():
        if not found and group not in PLAYED:
            continue
        pieces = "".join(
            f"<li>{words.page(title, tag='a', more=f'href=#{key}')}</li>"
            for key, title in PLAYED.get(group, {}).items()
        )
        count = f'<span class="count" data-group-count="{group}">{len(found)}</span>'
        rows.append(
            f'<li><a href="#{group}" data-chapter="{group}">{words.page(GROUPS[group])} {count}</a>'
            + (f"<ul>{pieces}</ul>" if pieces else "")
            + "</li>"
        )
    label = words.attributes(aria_label="Chapters")
    return f'<nav class="contents" {label}><ol>{"".join(rows)}</ol></nav>'


def _head(words: Words, rulings: Sequence[Ruling]) -> str:
    counts = Counter(ruling.verdict for ruling in rulings)
    present = [verdict for verdict in VERDICTS if counts[verdict]]
    bar = "".join(
        f'<span class="{kind_of(verdict)}" style="flex-grow:{counts[verdict]}"></span>'
        for verdict in present
    )
    buttons = "".join(
        f'<button type="button" class="verdict {kind_of(verdict)}" aria-pressed="false" '
        f'data-filter="{kind_of(verdict)}">{sign(kind_of(verdict))}<b>{counts[verdict]}</b> '
        f"{words.page(verdict)}</button>"
        for verdict in present
    )
    options = words.page("All notes", tag="option", more='value=""')
    for note in NOTES.values():
        if any(note.name in ruling.claim.notes for ruling in rulings):
            options += words.page(note_phrase(note), tag="option", more=f'value="{note.name}"')
    if any(not ruling.claim.notes for ruling in rulings):
        options += words.page("Not from a note", tag="option", more='value="none"')
    search = (
        '<input type="search" id="search" '
        f"{words.attributes(placeholder='Search', aria_label='Search the claims')}>"
    )
    total = len(rulings)
    return (
        f'<section class="head">{words.page(TITLE, tag="h1")}'
        + words.page(INTRODUCTION, tag="p", more='class="lead"')
        + f'<div class="tally" role="group" {words.attributes(aria_label="Verdicts")}>'
        f'<div class="bar" aria-hidden="true">{bar}</div><div class="verdicts">{buttons}</div></div>'
        f'<form class="filters with" id="filters" role="search">{search}'
        f'<select id="note" {words.attributes(aria_label="Note")}>{options}</select>'
        + words.page("Show all", tag="button", more='type="button" id="reset" disabled')
        + words.page(
            "{shown} of {total} claims",
            tag="p",
            more='class="soft" aria-live="polite"',
            shown=f'<b data-n="shown">{total}</b>',
            total=f'<b data-n="total">{total}</b>',
        )
        + "</form>"
        + words.page(WITHOUT_SCRIPT, tag="p", more='class="soft without"')
        + f'<details class="reading">{words.page("How to read this page", tag="summary")}'
        + words.page(HOW_TO_READ, tag="p")
        + "</details>"
        + words.page(NOTHING_FITS, tag="p", more='class="nothing" id="nothing" hidden')
        + "</section>"
    )


def _chapter(words: Words, group: str, found: Sequence[Ruling], code: Mapping[str, str]) -> str:
    exercise = next((ruling for ruling in found if ruling.claim.name == EXERCISE), None)
    pieces = "".join(
        play(words, key, measured=_trained(words, exercise)) for key in PLAYED.get(group, {})
    )
    if not found and not pieces:
        return ""
    articles = "\n".join(
        article(words, ruling, code.get(ruling.claim.name, "")) for ruling in found
    )
    return (
        f'<section class="chapter" id="{group}" aria-labelledby="{group}-title">'
        f"{words.page(GROUPS[group], tag='h2', more=f'id={group}-title')}{pieces}{articles}</section>"
    )


def _trained(words: Words, ruling: Ruling | None) -> str:
    """What the measurement says about the exercise; the curves are taken from the claim."""
    if ruling is None:
        return ""
    claim = ruling.claim
    drawn = '<div id="exercise-curves"></div>' if ruling.pictures else ""
    return (
        f"<h4>{words.page('What training says')} {badge(words, ruling.verdict)}</h4>{drawn}"
        f"{words.claim(claim.why, ruling, tag='p')}{right(words, ruling)}"
        f'<p><a href="#{EXERCISE}">{words.page("The claim with all its numbers")}</a></p>'
    )


def _about(words: Words, about: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<dt>{words.page(ABOUT[key])}</dt><dd>{html.escape(_told(value))}</dd>"
        for key, value in about.items()
        if value not in (None, "", [], {}, ())
    )
    if not rows:
        return ""
    return f'<section class="about">{words.page("About the measurements", tag="h2")}<dl>{rows}</dl></section>'


def _told(value: object) -> str:
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value)
        return ", ".join(f"{key} {_told(one)}" for key, one in pairs.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(str(one) for one in cast("Sequence[object]", value))
    return str(value)
