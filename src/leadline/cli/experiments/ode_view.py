"""`leadline reproduce ode-view`: a residual network as an ordinary differential equation."""

from __future__ import annotations

from typing import Annotated

import typer

from leadline.cli.experiments._shared import PictureFolder, deliver, ready
from leadline.cli.request import options as o
from leadline.cli.screen.voice import Voice

NETWORK = "Network"


def ode_view(
    width: Annotated[
        int, typer.Option("--width", metavar="N", help="Features.", rich_help_panel=NETWORK)
    ] = 16,
    tokens: Annotated[
        int, typer.Option("--tokens", metavar="N", help="Tokens.", rich_help_panel=NETWORK)
    ] = 8,
    time: Annotated[
        float,
        typer.Option(
            "--time",
            metavar="T",
            help="For how long the flow is followed.",
            rich_help_panel=NETWORK,
        ),
    ] = 1.0,
    seeds: Annotated[
        int,
        typer.Option("--seeds", metavar="N", help="How many networks.", rich_help_panel=NETWORK),
    ] = 3,
    connection: Annotated[
        str,
        typer.Option(
            "--connection",
            metavar="NAME",
            help="Connection of the design whose spectrum stands beside plain pre-norm.",
            rich_help_panel=NETWORK,
        ),
    ] = "weighted(alpha=depth)",
    placement: Annotated[
        str,
        typer.Option("--placement", metavar="NAME", help="Its placement.", rich_help_panel=NETWORK),
    ] = "pre",
    init: Annotated[
        str, typer.Option("--init", metavar="NAME", help="Its init.", rich_help_panel=NETWORK)
    ] = "xavier",
    seed: o.Seed = 0,
    output: PictureFolder = None,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,  # main reads it
) -> None:
    """A residual network as an ordinary differential equation: convergence and stability.

    Depth is doubled and the step halved, with and without a norm after each step; eigenvalues of
    blocks stand beside the region of stability of explicit Euler.
    """
    ready(output)
    with Voice(as_json=as_json, quiet=quiet) as voice:
        with voice.progress("Drawing the networks") as gauge:
            from leadline.experiments.ode_view.experiment import Setting
            from leadline.experiments.ode_view.experiment import ode_view as experiment

            setting = Setting(
                width=width,
                tokens=tokens,
                time=time,
                seeds=seeds,
                seed=seed,
                connection=connection,
                placement=placement,
                init=init,
            )
            outcome = experiment(setting, progress=gauge)
        deliver(voice, outcome, output)
