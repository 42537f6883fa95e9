"""`leadline paths`: one forward pass taken apart by the number of attention hops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from leadline.cli.request import options as o
from leadline.cli.request.models import AnatomyRequest, takes_request
from leadline.cli.screen.voice import Voice, check_page, check_writable
from leadline.errors import ProbeError, RecordError

if TYPE_CHECKING:
    from leadline.record import Record

Loss = Literal["auto", "next-token", "masked", "random"]
_WRITES = {".leadline": "record is", ".json": "numbers are", ".svg": "picture is"}


@takes_request
def paths(
    request: AnatomyRequest,
    samples: Annotated[
        int,
        typer.Option(
            "--samples",
            metavar="N",
            min=0,
            help="Also draw N random paths of every length, to see how far sampling gets.",
            rich_help_panel=o.MEASURING,
        ),
    ] = 0,
    no_logits: Annotated[
        bool,
        typer.Option(
            "--no-logits",
            help="Stop at the last layer: neither logits nor losses.",
            rich_help_panel=o.MEASURING,
        ),
    ] = False,
    loss: Annotated[
        Loss,
        typer.Option(
            "--loss",
            help="The loss of the logits; auto takes what the model's head is for.",
            rich_help_panel=o.MEASURING,
        ),
    ] = "auto",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Save the record (FILE.leadline), the numbers (FILE.json) or a picture "
            "(FILE.svg).",
            rich_help_panel=o.OUTPUT,
            show_default=False,
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="FILE.html",
            help="Write the report here: one file that needs no network.",
            rich_help_panel=o.OUTPUT,
            show_default=False,
        ),
    ] = None,
    everything: o.Everything = False,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,  # main reads it
) -> None:
    """Take one forward pass of MODEL apart by the number of attention hops.

    Exact with patterns, norm statistics and gates frozen: the share of every path length in the
    output, in the residual and in the logits, and the loss with at most so many hops.
    """
    _check_outputs(output, html)
    request.check()
    with Voice(as_json=as_json, quiet=quiet) as voice:
        with voice.progress("Loading the model") as gauge:
            from leadline.instruments.paths.recording import paths as measure_paths

            declared = request.declaration()
            loaded = request.load()
            try:
                record = measure_paths(
                    loaded.model,
                    request.inputs(loaded),
                    logits=not no_logits,
                    samples=samples,
                    seed=request.seed,
                    loss=loss,
                    anatomy=declared,
                    families=not request.no_families,
                    name=loaded.name,
                    progress=gauge,
                )
            except KeyboardInterrupt:
                raise ProbeError("The pass was interrupted, and nothing of it is kept.") from None
            if html is not None:
                from leadline.reading.page import report

                report(record, html)
        if loaded.missing:
            voice.note(f"Not in the file, so random: {', '.join(loaded.missing)}.")
        if output is not None:
            _write(record, output)
        from leadline.instruments.paths.picture import show_paths

        voice.emit(record.paths.to_json)
        voice.show(lambda console: show_paths(record.paths, console, everything=everything))
        if output is not None:
            voice.say(f"The {_WRITES[output.suffix.lower()]} in {output}")
        if html is not None:
            voice.say(f"The report is in {html}")


def _check_outputs(output: Path | None, html: Path | None) -> None:
    """Refuse outputs that could not be written, before the work."""
    if output is not None:
        if output.suffix.lower() not in _WRITES:
            raise RecordError(
                "-o writes a record, numbers or a picture, so its name must end in .leadline, "
                f".json or .svg; {output} does not."
            )
        check_writable(output, "result")
    if html is not None:
        check_page(html)


def _write(record: Record, output: Path) -> None:
    kind = output.suffix.lower()
    if kind == ".leadline":
        record.save(output)
    elif kind == ".svg":
        from leadline.instruments.paths.picture import picture_of_paths

        output.write_text(picture_of_paths(record.paths), encoding="utf-8")
    else:
        text = json.dumps(record.paths.to_json(), indent=2, allow_nan=False)
        output.write_text(text + "\n", encoding="utf-8")
