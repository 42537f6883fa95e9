"""`leadline list`: what there is, by kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from leadline.cli.request import options as o
from leadline.cli.screen.columns import print_line, two_columns
from leadline.cli.screen.voice import Voice
from leadline.cli.shelves.shelves import CODED, SHELVES, Page, open_shelf
from leadline.errors import without_collector

if TYPE_CHECKING:
    from rich.console import Console


def list_(
    voice: Voice,
    kind: Annotated[
        str | None, o.argument("KIND", f"One kind alone: {', '.join(SHELVES)}.")
    ] = None,
    plugin: o.Plugins = None,
) -> None:
    """List what there is: rules, alarms, probes, quantities, bounds, families, parts, recipes, concepts."""
    with voice.progress("Reading the catalogs"), without_collector():
        kinds = list(SHELVES) if kind is None else [kind]
        shelves = {name: open_shelf(name) for name in kinds}
    voice.emit(
        lambda: {
            name: [
                {"name": page.name, "summary": page.summary}
                | ({"code": page.facts["code"]} if name in CODED else {})
                for page in pages.values()
            ]
            for name, pages in shelves.items()
        }
    )
    voice.show(lambda console: _draw(shelves, console))


def _draw(shelves: dict[str, dict[str, Page]], console: Console) -> None:
    for kind, pages in shelves.items():
        print_line(console, kind, style="bold")
        codes = {name: f"{page.facts['code']} " for name, page in pages.items() if kind in CODED}
        rows = ((f"{codes.get(name, '')}{name}", page.summary) for name, page in pages.items())
        two_columns(rows, console)
        console.print()
    console.print("`leadline explain NAME` tells one of them in full.")
