"""`leadline bounds`: what theorems predict about attention, beside what a record holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from leadline.catalog import load_plugin
from leadline.cli import _options as o
from leadline.cli._voice import Voice


def bounds(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.leadline", help="A record with attention readings.", show_default=False
        ),
    ],
    bound: Annotated[
        list[str] | None,
        typer.Option(
            "--bound",
            metavar="NAME",
            help="This bound alone (`leadline list bounds` names them); may be repeated.",
            show_default=False,
        ),
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option("--layer", metavar="N", help="The heads of one layer.", show_default=False),
    ] = None,
    heads: Annotated[bool, typer.Option("--heads", help="A row for every head.")] = False,
    plugin: o.Plugins = None,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,  # main reads it
) -> None:
    """Set the bounds on attention matrices beside what was measured.

    For every bound: what it predicts, what was measured, their ratio, and whether its assumptions
    hold for this model and this input. Exit code 1 means that a bound is violated where its
    assumptions hold.
    """
    for path in plugin or ():
        load_plugin(path)
    with Voice(as_json=as_json, quiet=quiet) as voice:
        from leadline.analysis.bounds import bounds as bounds_of
        from leadline.record import Record
        from leadline.reporting import show_bounds

        with voice.progress("Computing the bounds"), Record.open(file) as record:
            table = bounds_of(record, names=bound, layer=layer)
        voice.emit(table.to_json)
        by_head = heads or layer is not None
        voice.show(lambda console: show_bounds(table, console, heads=by_head))
    if table.violated:
        raise typer.Exit(1)
