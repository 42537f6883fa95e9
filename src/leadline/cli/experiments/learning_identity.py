"""`leadline reproduce learning-identity`: is it easier to learn F = 0 or F = x?"""

from __future__ import annotations

from typing import Annotated

import typer

from leadline.cli.experiments._shared import PictureFolder, deliver, ready
from leadline.cli.request import options as o
from leadline.cli.screen.voice import Voice

TRAINING = "Training"


def learning_identity(
    blocks: Annotated[
        int,
        typer.Option(
            "--blocks",
            metavar="N",
            help="Blocks of the row that is trained beside the single block.",
            rich_help_panel=TRAINING,
        ),
    ] = 12,
    width: Annotated[
        int, typer.Option("--width", metavar="N", help="Features.", rich_help_panel=TRAINING)
    ] = 32,
    steps: Annotated[
        int,
        typer.Option("--steps", metavar="N", help="Training steps.", rich_help_panel=TRAINING),
    ] = 400,
    seeds: Annotated[
        int,
        typer.Option(
            "--seeds", metavar="N", help="How often each is trained.", rich_help_panel=TRAINING
        ),
    ] = 5,
    seed: o.Seed = 0,
    output: PictureFolder = None,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,  # main reads it
) -> None:
    """Is it easier to learn F = 0 or F = x? Blocks trained to be the identity, in seconds.

    One ReLU block and a row of them, with and without skip, from two starts.
    """
    ready(output)
    with Voice(as_json=as_json, quiet=quiet) as voice:
        with voice.progress("Drawing the blocks") as gauge:
            from leadline.experiments.learning_identity import Setting
            from leadline.experiments.learning_identity import learning_identity as experiment

            setting = Setting(width=width, blocks=blocks, steps=steps, seeds=seeds, seed=seed)
            outcome = experiment(setting, progress=gauge)
        deliver(voice, outcome, output)
