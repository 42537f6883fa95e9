"""`leadline explain`: one thing in full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from leadline.cli.request import options as o
from leadline.cli.screen.columns import print_line, print_text, two_columns
from leadline.cli.screen.voice import Voice
from leadline.cli.shelves.shelves import SHELVES, SINGULAR, Page, in_full, open_shelf
from leadline.errors import CatalogError, did_you_mean

if TYPE_CHECKING:
    from rich.console import Console


def explain(
    voice: Voice,
    name: Annotated[
        str,
        o.argument(
            "NAME",
            "The name of anything that `leadline list` shows, such as stream.norm or deepnorm.",
        ),
    ],
    plugin: o.Plugins = None,
) -> None:
    """Explain one probe, quantity, model family, part or recipe in full.

    Where several things have the name, all of them are told.
    """
    with voice.progress("Reading the catalogs"):
        shelves = {kind: open_shelf(kind) for kind in SHELVES}
        found = {
            kind: in_full(kind, pages[name]) for kind, pages in shelves.items() if name in pages
        }
    if not found:
        raise CatalogError(_nothing(name, shelves))
    voice.emit(lambda: {kind: page.to_json() for kind, page in found.items()})
    voice.show(lambda console: _draw(found, console))


def _nothing(name: str, shelves: dict[str, dict[str, Page]]) -> str:
    """The sentence for a name that nothing has. All names would fill the screen."""
    hint = did_you_mean(name, sorted({known for pages in shelves.values() for known in pages}))
    return f"Nothing is called {name!r}.{hint} `leadline list` shows every name."


def _draw(found: dict[str, Page], console: Console) -> None:
    for number, (kind, page) in enumerate(found.items()):
        if number:
            console.print()
        print_line(console, f"{page.name} ({SINGULAR[kind]})", style="bold")
        if page.text:
            print_text(page.text, console)
            console.print()
        facts = ((key.replace("_", " "), value) for key, value in page.facts.items())
        two_columns(facts, console)
