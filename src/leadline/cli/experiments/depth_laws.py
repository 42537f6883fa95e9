"""`leadline reproduce depth-laws`: every law of depth beside its measurement."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from leadline.cli.experiments._shared import (
    EXPERIMENT,
    Depths,
    PictureFolder,
    deliver,
    depths_of,
    ready,
)
from leadline.cli.request import options as o
from leadline.cli.screen.voice import Voice


def depth_laws(
    depths: Depths = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            metavar="N",
            help="How many models of each kind: 8, or 3 with --quick; at least 2.",
            rich_help_panel=EXPERIMENT,
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Fewer seeds, products of Jacobians up to 6 layers.",
            rich_help_panel=EXPERIMENT,
        ),
    ] = False,
    seed: o.Seed = 0,
    output: PictureFolder = None,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,  # main reads it
) -> None:
    """Do the laws of depth hold? Each beside its measurement on a design that meets its assumptions.

    Bands at every site with the mean over seeds and its standard error, exponents over depth
    beside those of the laws, and the product of Jacobians between its bounds. Nothing is trained.
    """
    chosen = depths_of(depths)
    ready(output)
    with Voice(as_json=as_json, quiet=quiet) as voice:
        with voice.progress("Building the models") as gauge:
            from leadline.experiments.depth_laws.experiment import Setting
            from leadline.experiments.depth_laws.experiment import depth_laws as experiment

            setting = Setting.quick() if quick else Setting()
            given = {"depths": chosen, "seeds": seeds}
            setting = replace(setting, **{k: v for k, v in given.items() if v is not None})
            outcome = experiment(setting, seed=seed, progress=gauge)
        deliver(voice, outcome, output)
