"""`leadline explain`: one thing in full."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from leadline.cli.request import options as o
from leadline.cli.screen.columns import print_line, print_text, two_columns
from leadline.cli.screen.voice import Voice, check_page
from leadline.cli.shelves.concepts import concept_key
from leadline.cli.shelves.shelves import CODED, SHELVES, SINGULAR, Page, in_full, open_shelf
from leadline.errors import CatalogError, InputError, did_you_mean, without_collector

if TYPE_CHECKING:
    from rich.console import Console

    from leadline.reading.diagnosis.examples.example import RuleExample


def explain(
    voice: Voice,
    name: Annotated[
        str,
        o.argument(
            "NAME",
            "The name of anything that `leadline list` shows, such as stream.norm or deepnorm; rules "
            "and alarms by their code too, such as R01.",
        ),
    ],
    html: Annotated[
        Path | None,
        o.option("--html FILE.html", "Write the page of a rule here, with its picture.", o.OUTPUT),
    ] = None,
    plugin: o.Plugins = None,
) -> None:
    """Explain one rule, alarm, probe, quantity, model family, part, recipe or concept in full.

    Where several things have the name, all of them are told.
    """
    if html is not None:
        check_page(html)
    with voice.progress("Reading the catalogs"), without_collector():
        shelves = {kind: open_shelf(kind) for kind in CODED}
        by_code = {
            page.facts["code"]: page.name for pages in shelves.values() for page in pages.values()
        }
        if name.upper() not in by_code:  # nothing else is called by a code, and others need torch
            shelves = {kind: open_shelf(kind) for kind in SHELVES}
        names = {name, by_code.get(name.upper(), name), concept_key(name)}
        found = {
            kind: in_full(kind, page)
            for kind, pages in shelves.items()
            for key, page in pages.items()
            if key in names
        }
    if not found:
        raise CatalogError(_nothing(name, shelves, by_code))
    if html is not None and "rules" not in found:
        raise InputError(
            f"--html writes the page of a rule, and {name} is none; `leadline list rules` names them."
        )
    voice.emit(lambda: {kind: _json(kind, page) for kind, page in found.items()})
    if html is None:
        voice.show(lambda console: _draw(found, console))
        return
    from leadline.reading.diagnosis.page import find_rule
    from leadline.reading.page.rule_page import write_rule_page

    write_rule_page(find_rule(found["rules"].name), html)
    voice.say(f"The page is in {html}")


def _json(kind: str, page: Page) -> dict[str, Any]:
    """The page as JSON; of a rule, its example as it was run."""
    example = _example(page) if kind == "rules" else None
    return page.to_json() | ({} if example is None else {"example": example.to_json()})


def _example(page: Page) -> RuleExample | None:
    from leadline.reading.diagnosis.page import example_of, find_rule

    return example_of(find_rule(page.name))


def _nothing(name: str, shelves: dict[str, dict[str, Page]], codes: Iterable[str]) -> str:
    """The sentence for a name that nothing has. All names would fill the screen."""
    names = {known for pages in shelves.values() for known in pages}
    # A code is near to codes alone: every short name is near to a letter and two digits.
    like_code = re.fullmatch(r"[A-Za-z]\d+", name)
    hint = did_you_mean(name.upper(), codes) if like_code else did_you_mean(name, sorted(names))
    return f"Nothing is called {name!r}.{hint} `leadline list` shows every name."


def _draw(found: dict[str, Page], console: Console) -> None:
    for number, (kind, page) in enumerate(found.items()):
        if number:
            console.print()
        code = f"{page.facts['code']} " if kind in CODED else ""
        print_line(console, f"{code}{page.name} ({SINGULAR[kind]})", style="bold")
        if kind in CODED:
            _draw_coded(page, console, example=_example(page) if kind == "rules" else None)
            continue
        if page.text:
            print_text(page.text, console)
            console.print()
        facts = ((key.replace("_", " "), value) for key, value in page.facts.items())
        two_columns(facts, console)


def _draw_coded(page: Page, console: Console, *, example: RuleExample | None) -> None:
    """Print the page of a rule or an alarm: a heading and paragraphs for all that it says."""
    from leadline.reading.diagnosis.examples.words import character_picture
    from leadline.reading.diagnosis.page import EXAMPLE

    for title, text in page.facts.items():
        if title == "code":
            continue
        console.print()
        print_line(console, title, style="bold cyan")
        print_text(text, console)
        if title == EXAMPLE and example is not None:
            console.print()
            for line in character_picture(example):
                print_line(console, f"  {line}")
