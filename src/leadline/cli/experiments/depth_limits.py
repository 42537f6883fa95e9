"""`leadline reproduce depth-limits`: the sweep of that name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from leadline.cli.request import options as o
from leadline.cli.sweep import sweep

PRESET = "depth-limits"


def depth_limits(
    quick: Annotated[
        bool, typer.Option("--quick", help="The places at which the designs part, in minutes.")
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            metavar="N",
            help="How many seeds, from 0 on; 3 unless given.",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="TIME",
            help="Stop after this time, such as 90s, 30m or 8h; the same command goes on.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.leadline",
            help="The record; depth-limits.leadline or depth-limits-quick.leadline unless given.",
            rich_help_panel=o.OUTPUT,
            show_default=False,
        ),
    ] = None,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,  # main reads it
) -> None:
    """How deep can each design be and still train? The map of `leadline sweep --preset depth-limits`.

    Ten designs from 6 to 96 layers, with and without warm-up: hours on a small machine. --quick
    takes minutes. `leadline sweep` has more options.
    """
    sweep(
        preset=PRESET,
        quick=quick,
        seeds=seeds,
        budget=budget,
        output=output,
        as_json=as_json,
        quiet=quiet,
    )
