"""`leadline reproduce gradient-flow`: gradient and stream over depth, before and after training."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from leadline.cli.experiments._shared import EXPERIMENT, Depths, Folder, deliver, depths_of, ready
from leadline.cli.request import options as o
from leadline.cli.screen.voice import Voice

TRAINING = "Training"


def gradient_flow(
    depths: Depths = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            metavar="N",
            help="How many untrained models of each kind: 5, or 3 with --quick.",
            rich_help_panel=EXPERIMENT,
            show_default=False,
        ),
    ] = None,
    training_seeds: Annotated[
        int | None,
        typer.Option(
            "--training-seeds",
            metavar="N",
            help="How often each is trained: 3, or 1 with --quick.",
            rich_help_panel=TRAINING,
            show_default=False,
        ),
    ] = None,
    training: Annotated[
        bool,
        typer.Option(
            "--training/--no-training",
            help="Train them too, or measure untrained models alone.",
            rich_help_panel=TRAINING,
        ),
    ] = True,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="N",
            help="Trainings at a time; as many as there are cores unless given.",
            rich_help_panel=TRAINING,
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Fewer seeds, Jacobians up to 12 layers, 100 steps for up to 24 layers.",
            rich_help_panel=EXPERIMENT,
        ),
    ] = False,
    seed: o.Seed = 0,
    output: Folder = None,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,  # main reads it
) -> None:
    """How do signal and gradient flow through depth? Seven designs before and after training.

    Gradients, stream, tokens and block Jacobians of untrained models with exponents over depth,
    beside the laws; then a short training without warm-up. With -o a run that was cut off goes on.
    """
    chosen = depths_of(depths)
    ready(output)
    with Voice(as_json=as_json, quiet=quiet) as voice:
        with voice.progress("Building the models") as gauge:
            from leadline.experiments.gradient_flow.experiment import Setting
            from leadline.experiments.gradient_flow.experiment import gradient_flow as experiment

            setting = Setting.quick() if quick else Setting()
            given = {"depths": chosen, "seeds": seeds, "training_seeds": training_seeds}
            setting = replace(setting, **{k: v for k, v in given.items() if v is not None})
            if not training:
                setting = replace(setting, trained_to=0)
            outcome = experiment(setting, seed=seed, folder=output, workers=workers, progress=gauge)
        deliver(voice, outcome, output)
