"""`leadline measure`: one model, one batch of inputs, every probe; a record of what was found."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from leadline.catalog import split_choices
from leadline.cli.request import options as o
from leadline.cli.request.models import AnatomyRequest, takes_request
from leadline.cli.request.outputs import HtmlFile, check_outputs
from leadline.cli.screen.voice import Voice
from leadline.errors import ProbeError

Loss = Literal["auto", "next-token", "masked", "random"]
Ablate = Literal["block", "sublayer"]


@takes_request
def measure(
    request: AnatomyRequest,
    probes: Annotated[
        str | None,
        typer.Option(
            "--probes",
            metavar="CHOICES",
            help="Which probes, such as stream,update,recall(ridge=0.01); "
            "`leadline list probes` names them.",
            rich_help_panel=o.MEASURING,
            show_default=False,
        ),
    ] = None,
    loss: Annotated[
        Loss,
        typer.Option(
            "--loss",
            help="What the backward pass starts from; auto takes what the model's head is for.",
            rich_help_panel=o.MEASURING,
        ),
    ] = "auto",
    ablate: Annotated[
        Ablate | None,
        typer.Option(
            "--ablate",
            help="Also leave out one block, or one sublayer, after the other.",
            rich_help_panel=o.MEASURING,
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.leadline",
            help="Save the record here. A measurement block by block that was cut off goes on "
            "there when the same command is given again.",
            rich_help_panel=o.OUTPUT,
            show_default=False,
        ),
    ] = None,
    html: HtmlFile = None,
    everything: o.Everything = False,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,  # main reads it
) -> None:
    """Measure how signal and gradient travel through MODEL.

    The anatomy is found and proved first, by a few small forward passes and one on the inputs.
    Then one forward and one backward pass feed every probe; jacobian and lyapunov go on block by
    block.
    """
    check_outputs(output, html)
    request.check()
    choices = None if probes is None else split_choices(probes)

    with Voice(as_json=as_json, quiet=quiet) as voice:
        with voice.progress("Loading the model") as gauge:
            from leadline.instruments.passes.measurement import measure as measure_model

            declared = request.declaration()
            loaded = request.load()
            try:
                record = measure_model(
                    loaded.model,
                    request.inputs(loaded),
                    probes=choices,
                    anatomy=declared,
                    families=not request.no_families,
                    loss=loss,
                    ablate=ablate,
                    seed=request.seed,
                    name=loaded.name,
                    source=loaded.source,
                    path=output,
                    progress=gauge,
                )
            except KeyboardInterrupt:
                raise ProbeError(_interrupted(output)) from None
            if html is not None:
                from leadline.reading.page import report

                report(record, html)
        if loaded.missing:
            voice.note(f"Not in the file, so random: {', '.join(loaded.missing)}.")
        from leadline.reading.page import as_json as record_to_json
        from leadline.reading.page import screen_of

        voice.emit(lambda: record_to_json(record))
        voice.show(screen_of(record, everything=everything).show)
        for what, path in (("record", output), ("report", html)):
            if path is not None:
                voice.say(f"The {what} is in {path}")
        if output is None and html is None and not as_json:
            voice.note("Not saved; -o FILE.leadline keeps the record, --html FILE the report.")


def _interrupted(output: Path | None) -> str:
    """What an interruption leaves behind."""
    if output is not None:
        from leadline.record import Record
        from leadline.record.file.unfinished import is_unfinished
        from leadline.record.words.unfinished import unfinished_text

        if is_unfinished(output):
            with Record.open(output) as record:
                how_far = unfinished_text(record.provenance)
            return f"The measurement was interrupted ({how_far}): give the same command again."
        return f"The measurement was interrupted before anything of it was in {output}."
    return "The measurement was interrupted, and without -o nothing of it is kept."
