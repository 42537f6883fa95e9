"""`leadline explain`: one thing in full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from leadline.catalog import load_plugin
from leadline.cli import _options as o
from leadline.cli._shelves import SHELVES, Page, open_shelf
from leadline.cli._voice import Voice
from leadline.errors import UnknownName

if TYPE_CHECKING:
    from rich.console import Console


def explain(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="The name of anything that `leadline list` shows, such as stream.norm.",
            show_default=False,
        ),
    ],
    plugin: o.Plugins = None,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,  # noqa: ARG001  (main reads it)
) -> None:
    """Explain one probe, quantity or model family in full."""
    for file in plugin or ():
        load_plugin(file)
    with Voice(as_json=as_json, quiet=quiet) as voice:
        with voice.progress("Reading the catalogs"):
            shelves = {kind: open_shelf(kind) for kind in SHELVES}
        found = {kind: pages[name] for kind, pages in shelves.items() if name in pages}
        if not found:
            every = [known for pages in shelves.values() for known in pages]
            raise UnknownName("probe, quantity or family", name, every)
        voice.emit(lambda: {kind: page.to_json() for kind, page in found.items()})
        voice.show(lambda console: _draw(found, console))


def _draw(found: dict[str, Page], console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    for kind, page in found.items():
        console.print(Text(f"{page.name}  ({kind})", style="bold"))
        if page.text:
            console.print(Text(page.text))
            console.print()
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(no_wrap=True, style="dim")
        table.add_column(overflow="fold")
        for key, value in page.facts.items():
            table.add_row(key, Text(value))
        console.print(table)
        console.print()
