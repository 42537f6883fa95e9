"""`leadline lyapunov`: how directions grow or fade through all blocks."""

from __future__ import annotations

from typing import Annotated

import typer

from leadline.cli.request import options as o
from leadline.cli.request.models import AnatomyRequest, takes_request
from leadline.cli.request.outputs import (
    HtmlFile,
    RecordFile,
    check_outputs,
    deliver_view,
    nothing_kept,
)
from leadline.cli.screen.voice import Voice


@takes_request
def lyapunov(
    request: AnatomyRequest,
    k: Annotated[
        int,
        typer.Option("--k", metavar="N", help="How many directions.", rich_help_panel=o.MEASURING),
    ] = 8,
    forward: Annotated[
        bool,
        typer.Option(
            "--forward",
            help="From the first site to the last, not from the last to the first as gradients go.",
            rich_help_panel=o.MEASURING,
        ),
    ] = False,
    stack: o.StackName = None,
    output: RecordFile = None,
    html: HtmlFile = None,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,  # main reads it
) -> None:
    """Carry random directions through all blocks of MODEL and measure how they grow.

    The Lyapunov exponents of the stack, the growth in every layer, and the size of the Jacobian
    from every site to the last one, also where the product is beyond the range of numbers.
    """
    check_outputs(output, html)
    request.check()
    with Voice(as_json=as_json, quiet=quiet) as voice:
        with voice.progress("Loading the model") as gauge, nothing_kept():
            from leadline.instruments.jacobian.recording import lyapunov as measure_lyapunov

            declared = request.declaration()
            loaded = request.load()
            record = measure_lyapunov(
                loaded,
                request.inputs(loaded),
                k=k,
                backward=not forward,
                stack=stack,
                anatomy=declared,
                families=not request.no_families,
                seed=request.seed,
                progress=gauge,
            )
        deliver_view(voice, record, loaded=loaded, output=output, html=html)
