"""`leadline reproduce fine-tuning`: does a strong residual keep a model from being adapted?"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from leadline.cli.experiments._shared import PictureFolder, deliver, ready
from leadline.cli.request import options as o
from leadline.cli.screen.voice import Voice

TRAINING = "Training"


def fine_tuning(
    base: Annotated[
        int | None,
        typer.Option(
            "--base-steps",
            metavar="N",
            help="Steps of training before adaptation: 300, or 120 with --quick.",
            rich_help_panel=TRAINING,
            show_default=False,
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            "--steps",
            metavar="N",
            help="Steps of adaptation: 120, or 50 with --quick.",
            rich_help_panel=TRAINING,
            show_default=False,
        ),
    ] = None,
    rank: Annotated[
        int,
        typer.Option(
            "--rank",
            metavar="N",
            help="Rank of LoRA, and features of an adapter.",
            rich_help_panel=TRAINING,
        ),
    ] = 4,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            metavar="N",
            help="How often each model is trained: 3, or 1 with --quick.",
            rich_help_panel=TRAINING,
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="About a minute.", rich_help_panel=TRAINING),
    ] = False,
    seed: o.Seed = 0,
    output: PictureFolder = None,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,  # main reads it
) -> None:
    """Does a strong residual keep LoRA, adapters or a second task from being learned?

    Models whose stream has a weight from 0.25 to 4 are trained on a text and adapted to the same
    text read backwards. Needs the extra tune.
    """
    ready(output)
    with Voice(as_json=as_json, quiet=quiet) as voice:
        with voice.progress("Building the models") as gauge:
            from leadline.experiments.fine_tuning.experiment import Setting
            from leadline.experiments.fine_tuning.experiment import fine_tuning as experiment

            setting = replace(Setting.quick() if quick else Setting(), rank=rank)
            given = {"base": base, "steps": steps, "seeds": seeds}
            setting = replace(setting, **{k: v for k, v in given.items() if v is not None})
            outcome = experiment(setting, seed=seed, progress=gauge)
        deliver(voice, outcome, output)
