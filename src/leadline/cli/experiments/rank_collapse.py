"""`leadline reproduce rank-collapse`: how far tokens still differ, layer by layer."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from leadline.cli.experiments._shared import Folder, Models, deliver, load_named, ready, shown
from leadline.cli.request import options as o
from leadline.cli.screen.voice import Voice
from leadline.errors import InputError

NETWORK = "Network"


def rank_collapse(
    models: Models = None,
    depth: Annotated[
        int, typer.Option("--depth", metavar="N", help="Layers.", rich_help_panel=NETWORK)
    ] = 12,
    width: Annotated[
        int, typer.Option("--width", metavar="N", help="Features.", rich_help_panel=NETWORK)
    ] = 128,
    heads: Annotated[
        int, typer.Option("--heads", metavar="N", help="Heads.", rich_help_panel=NETWORK)
    ] = 1,
    causal: Annotated[
        bool, typer.Option("--causal", help="Hide later tokens.", rich_help_panel=NETWORK)
    ] = False,
    norm: Annotated[
        str,
        typer.Option(
            "--norm",
            metavar="NAME",
            help="What stands before attention and MLP: layernorm, rmsnorm or none.",
            rich_help_panel=NETWORK,
        ),
    ] = "layernorm",
    tokens: Annotated[
        int | None,
        typer.Option(
            "--tokens",
            metavar="N",
            help="Tokens: 10, or 32 with MODEL.",
            rich_help_panel=o.INPUT,
            show_default=False,
        ),
    ] = None,
    samples: Annotated[
        int,
        typer.Option(
            "--samples", metavar="N", help="How many inputs to draw.", rich_help_panel=o.INPUT
        ),
    ] = 32,
    dtype: o.Dtype = None,
    device: o.Device = "cpu",
    seed: o.Seed = 0,
    output: Folder = None,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,  # main reads it
    context: typer.Context = None,  # type: ignore[assignment]
) -> None:
    """How far tokens still differ, with skip and MLP on and off: float32 beside the truth.

    Without MODEL, the long note's experiment: random networks in four variants. With models, each
    of them as trained and with skip and MLP switched off one at a time.
    """
    if models:
        _refuse_network_options(context)
    ready(output)
    with Voice(as_json=as_json, quiet=quiet) as voice:
        with voice.progress("Building the networks") as gauge:
            if models:
                from leadline.experiments.rank_collapse.switched_off import switched_off

                loaders = {
                    shown(text): partial(load_named, text, dtype=dtype, device=device, seed=seed)
                    for text in models
                }
                outcome = switched_off(loaders, tokens=tokens or 32, seed=seed, progress=gauge)
            else:
                from leadline.experiments.rank_collapse.experiment import Setting
                from leadline.experiments.rank_collapse.experiment import (
                    rank_collapse as experiment,
                )

                setting = Setting(
                    tokens=10 if tokens is None else tokens,
                    width=width,
                    depth=depth,
                    heads=heads,
                    samples=samples,
                    norm=norm,
                    causal=causal,
                    seed=seed,
                )
                outcome = experiment(setting, progress=gauge)
        deliver(voice, outcome, output)


def _refuse_network_options(context: typer.Context) -> None:
    given = [
        f"--{name}"
        for name in ("depth", "width", "heads", "causal", "norm", "samples")
        if str(context.get_parameter_source(name)).endswith("COMMANDLINE")
    ]
    if given:
        raise InputError(
            f"{', '.join(given)} describe the random networks, and models were given; leave one of "
            "them out."
        )
