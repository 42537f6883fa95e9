"""`leadline reproduce layer-dropping`: layers dropped in training and at test time."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from leadline.cli.experiments._shared import PictureFolder, deliver, ready
from leadline.cli.request import options as o
from leadline.cli.screen.voice import Voice

TRAINING = "Training"


def layer_dropping(
    depth: Annotated[
        int | None,
        typer.Option(
            "--depth",
            metavar="N",
            help="Layers: 12, or 6 with --quick.",
            rich_help_panel=TRAINING,
            show_default=False,
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            "--steps",
            metavar="N",
            help="Training steps: 600, or 150 with --quick.",
            rich_help_panel=TRAINING,
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            metavar="N",
            help="How often each model is trained: 3, or 2 with --quick.",
            rich_help_panel=TRAINING,
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Less than a minute.", rich_help_panel=TRAINING),
    ] = False,
    seed: o.Seed = 0,
    output: PictureFolder = None,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,  # main reads it
) -> None:
    """Can layers be left out? Loss by number of layers dropped, and the time saved in training.

    The same byte-level model is trained plainly, with LayerDrop and with stochastic depth; then
    layers are left out, evenly and at random.
    """
    ready(output)
    with Voice(as_json=as_json, quiet=quiet) as voice:
        with voice.progress("Building the models") as gauge:
            from leadline.experiments.layer_dropping.experiment import Setting
            from leadline.experiments.layer_dropping.experiment import layer_dropping as experiment

            setting = Setting.quick() if quick else Setting()
            given = {"depth": depth, "steps": steps, "seeds": seeds}
            setting = replace(setting, **{k: v for k, v in given.items() if v is not None})
            outcome = experiment(setting, seed=seed, progress=gauge)
        deliver(voice, outcome, output)
