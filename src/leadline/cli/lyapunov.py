"""`leadline lyapunov`: how directions grow or fade through all blocks."""

from __future__ import annotations

from typing import Annotated

from leadline.cli.request import options as o
from leadline.cli.request.models import AnatomyRequest
from leadline.cli.request.outputs import check_outputs, deliver_view, nothing_kept
from leadline.cli.request.room import load_with_room
from leadline.cli.screen.voice import Voice


def lyapunov(
    voice: Voice,
    request: AnatomyRequest,
    k: Annotated[int, o.option("--k N", "How many directions.", o.MEASURING)] = 8,
    forward: Annotated[
        bool,
        o.option(
            "--forward",
            "From the first site to the last, not from the last to the first as gradients go.",
            o.MEASURING,
        ),
    ] = False,
    stack: o.StackName = None,
    output: o.RecordFile = None,
    html: o.HtmlFile = None,
    dry_run: o.DryRun = False,
    anyway: o.Anyway = False,
) -> None:
    """Carry random directions through all blocks of MODEL and measure how they grow.

    The Lyapunov exponents of the stack, the growth in every layer, and the size of the Jacobian
    from every site to the last one, also where the product is beyond the range of numbers.
    """
    check_outputs(output, html)
    request.check()
    if dry_run:
        from leadline.cli.screen.cost_screen import show_cost

        show_cost(voice, request, "lyapunov", k=k)
        return
    with voice.progress("Loading the model") as gauge, nothing_kept():
        from leadline.instruments.jacobian.recording import lyapunov as measure_lyapunov

        declared = request.declaration()
        loaded = load_with_room(voice, request, "lyapunov", anyway=anyway, k=k)
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
