"""`leadline list`: what there is, by kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from leadline.catalog import load_plugin
from leadline.cli.request import options as o
from leadline.cli.screen.columns import print_line, two_columns
from leadline.cli.screen.voice import Voice
from leadline.cli.shelves.shelves import SHELVES, Page, open_shelf

if TYPE_CHECKING:
    from rich.console import Console


def list_(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            help=f"One kind alone: {', '.join(SHELVES)}.",
            show_default=False,
        ),
    ] = None,
    plugin: o.Plugins = None,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,  # main reads it
) -> None:
    """List what there is: probes, quantities, bounds, model families, parts, recipes."""
    for file in plugin or ():
        load_plugin(file)
    with Voice(as_json=as_json, quiet=quiet) as voice:
        with voice.progress("Reading the catalogs"):
            kinds = list(SHELVES) if kind is None else [kind]
            shelves = {name: open_shelf(name) for name in kinds}
        voice.emit(
            lambda: {
                name: [{"name": page.name, "summary": page.summary} for page in pages.values()]
                for name, pages in shelves.items()
            }
        )
        voice.show(lambda console: _draw(shelves, console))


def _draw(shelves: dict[str, dict[str, Page]], console: Console) -> None:
    for kind, pages in shelves.items():
        print_line(console, kind, style="bold")
        two_columns(((page.name, page.summary) for page in pages.values()), console)
        console.print()
    console.print("`leadline explain NAME` tells one of them in full.")
