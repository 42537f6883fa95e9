"""`leadline measure`: one model, one batch of inputs, every probe; a record of what was found."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from leadline.catalog import split_choices
from leadline.cli.request import options as o
from leadline.cli.request.models import AnatomyRequest
from leadline.cli.request.outputs import (
    check_outputs,
    say_missing,
    say_outputs,
    say_streaming,
    write_outputs,
)
from leadline.cli.request.room import load_with_room
from leadline.cli.screen.voice import Voice
from leadline.errors import ProbeError

Loss = Literal["auto", "next-token", "masked", "random"]
Ablate = Literal["block", "sublayer"]


def measure(
    voice: Voice,
    request: AnatomyRequest,
    probes: Annotated[
        str | None,
        o.option(
            "--probes CHOICES",
            "Which probes, such as stream,update,recall(ridge=0.01); "
            "`leadline list probes` names them.",
            o.MEASURING,
        ),
    ] = None,
    loss: Annotated[
        Loss,
        o.option(
            "--loss",
            "What the backward pass starts from; auto takes what the model's head is for.",
            o.MEASURING,
        ),
    ] = "auto",
    ablate: Annotated[
        Ablate | None,
        o.option(
            "--ablate", "Also leave out one block, or one sublayer, after the other.", o.MEASURING
        ),
    ] = None,
    output: Annotated[
        Path | None,
        o.option(
            "--output -o FILE.leadline",
            "Save the record here. A measurement block by block that was cut off goes on "
            "there when the same command is given again.",
            o.OUTPUT,
        ),
    ] = None,
    html: o.HtmlFile = None,
    dry_run: o.DryRun = False,
    anyway: o.Anyway = False,
    everything: o.Everything = False,
) -> None:
    """Measure how signal and gradient travel through MODEL.

    The anatomy is found and proved first, by a few small forward passes and one on the inputs.
    Then one forward and one backward pass feed every probe; jacobian and lyapunov go on block by
    block.
    """
    check_outputs(output, html)
    request.check()
    choices = None if probes is None else split_choices(probes)
    if dry_run:
        from leadline.cli.screen.cost_screen import show_cost

        show_cost(voice, request, "measure", probes=choices, loss=loss, ablate=ablate)
        return
    _say_one_process(voice)

    with voice.progress("Loading the model") as gauge:
        from leadline.instruments.passes.measurement import measure as measure_model

        declared = request.declaration()
        loaded = load_with_room(
            voice, request, "measure", anyway=anyway, probes=choices, loss=loss, ablate=ablate
        )
        say_streaming(gauge, loaded)
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
                anyway=anyway,
            )
        except KeyboardInterrupt:
            raise ProbeError(_interrupted(output)) from None
        write_outputs(record, None, html)  # the record was written to -o while measuring
    say_missing(voice, loaded)
    from leadline.reading.page import as_json as record_to_json
    from leadline.reading.page import screen_of

    voice.emit(lambda: record_to_json(record))
    voice.show(screen_of(record, everything=everything).show)
    say_outputs(voice, output, html, remind=True)


def _say_one_process(voice: Voice) -> None:
    """Say inside of a job of several processes that this command knows of one."""
    count = os.environ.get("WORLD_SIZE", "")
    if count.isdecimal() and int(count) > 1:
        voice.note(
            f"WORLD_SIZE says that this is one of {count} processes; this command measures the model "
            "in each of them alone. To measure a sharded model call leadline.measure(model, inputs) "
            "in every process."
        )


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
