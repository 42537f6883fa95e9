"""`leadline paths`: one forward pass taken apart by the number of attention hops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from leadline.cli.request import options as o
from leadline.cli.request.models import AnatomyRequest, takes_request
from leadline.cli.screen.voice import Voice, check_writable
from leadline.errors import RecordError

if TYPE_CHECKING:
    from leadline.instruments.paths.result import Paths

Loss = Literal["auto", "next-token", "masked", "random"]


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
            help="Write the numbers (FILE.json) or a picture (FILE.svg).",
            rich_help_panel=o.OUTPUT,
            show_default=False,
        ),
    ] = None,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,  # main reads it
) -> None:
    """Take one forward pass of MODEL apart by the number of attention hops.

    Exact with patterns, norm statistics and gates frozen: the share of every path length in the
    output, in the residual and in the logits, and the loss with at most so many hops.
    """
    _check_output(output)
    request.check()
    with Voice(as_json=as_json, quiet=quiet) as voice:
        with voice.progress("Loading the model") as gauge:
            from leadline.instruments.paths.measure import paths as paths_of

            declared = request.declaration()
            loaded = request.load()
            found = paths_of(
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
        if loaded.missing:
            voice.note(f"Not in the file, so random: {', '.join(loaded.missing)}.")
        if output is not None:
            _write(found, output)
        from leadline.instruments.paths.picture import show_paths

        voice.emit(found.to_json)
        voice.show(lambda console: show_paths(found, console))
        if output is not None:
            what = "picture is" if output.suffix.lower() == ".svg" else "numbers are"
            voice.say(f"The {what} in {output}")


def _check_output(output: Path | None) -> None:
    """Refuse an output that could not be written, before the work."""
    if output is None:
        return
    if output.suffix.lower() not in {".json", ".svg"}:
        raise RecordError(
            f"-o writes numbers or a picture, so its name must end in .json or .svg; {output} does "
            "not."
        )
    check_writable(output, "result")


def _write(found: Paths, output: Path) -> None:
    if output.suffix.lower() == ".svg":
        from leadline.instruments.paths.picture import picture_of_paths

        output.write_text(picture_of_paths(found), encoding="utf-8")
    else:
        text = json.dumps(found.to_json(), indent=2, allow_nan=False)
        output.write_text(text + "\n", encoding="utf-8")
