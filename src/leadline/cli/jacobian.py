"""`leadline jacobian`: the Jacobian of one block, one write, or a stretch of blocks."""

from __future__ import annotations

from typing import Annotated

from typer.models import OptionInfo

from leadline.cli.request import options as o
from leadline.cli.request.models import AnatomyRequest
from leadline.cli.request.outputs import check_outputs, deliver_view, nothing_kept
from leadline.cli.request.room import load_with_room
from leadline.cli.screen.voice import Voice
from leadline.errors import InputError


def _number(name: str, text: str) -> OptionInfo:
    return o.option(f"{name} N", text, o.MEASURING, show_default=False)


def jacobian(
    voice: Voice,
    request: AnatomyRequest,
    layer: Annotated[int | None, _number("--layer", "One block, counted from 1.")] = None,
    sublayer: Annotated[
        int | None, _number("--sublayer", "One write of that block, counted from 1.")
    ] = None,
    start: Annotated[
        int | None, _number("--from", "The site where a stretch begins; 0 if not given.")
    ] = None,
    end: Annotated[int | None, _number("--to", "The site where it ends.")] = None,
    k: Annotated[int, _number("--k", "How many of the largest singular values; 4.")] = 4,
    smallest: Annotated[
        int, _number("--smallest", "How many of the smallest singular values; 0.")
    ] = 0,
    stack: o.StackName = None,
    output: o.RecordFile = None,
    html: o.HtmlFile = None,
    dry_run: o.DryRun = False,
    anyway: o.Anyway = False,
) -> None:
    """Measure the Jacobian of one block of MODEL, or of a stretch of blocks.

    Singular values with their errors, the size of the Jacobian and its distance from the identity,
    causality, and the tokens at which the strongest direction enters and leaves. Without --layer,
    --from and --to it is that of the whole stack. `leadline measure --probes jacobian` does every
    block.
    """
    check_outputs(output, html)
    request.check()
    if layer is not None and (start is not None or end is not None):
        raise InputError("--layer is one block, --from and --to are a stretch of them: give one.")
    if start is not None and end is None:
        raise InputError(f"--from {start} begins a stretch; say where it ends, such as --to 6.")
    if dry_run:
        from leadline.cli.screen.cost_screen import show_cost

        show_cost(
            voice,
            request,
            "jacobian",
            layer=layer if end is None else (start or 0, end),
            k=k,
            smallest=smallest,
        )
        return
    with voice.progress("Loading the model") as gauge, nothing_kept():
        from leadline.instruments.jacobian.recording import jacobian as measure_jacobian

        declared = request.declaration()
        loaded = load_with_room(
            voice,
            request,
            "jacobian",
            anyway=anyway,
            layer=layer if end is None else (start or 0, end),
            k=k,
            smallest=smallest,
        )
        record = measure_jacobian(
            loaded,
            request.inputs(loaded),
            layer=layer if end is None else (start or 0, end),
            sublayer=sublayer,
            k=k,
            smallest=smallest,
            stack=stack,
            anatomy=declared,
            families=not request.no_families,
            seed=request.seed,
            progress=gauge,
        )
    deliver_view(voice, record, loaded=loaded, output=output, html=html)
