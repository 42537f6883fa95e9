"""`leadline paths`: one forward pass taken apart by the number of attention hops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from leadline.cli.request import options as o
from leadline.cli.request.models import AnatomyRequest
from leadline.cli.request.outputs import say_missing
from leadline.cli.screen.voice import Voice, check_writable
from leadline.errors import RecordError

if TYPE_CHECKING:
    from leadline.instruments.paths.result import Paths

Loss = Literal["auto", "next-token", "masked", "random"]


def paths(
    voice: Voice,
    request: AnatomyRequest,
    samples: Annotated[
        int,
        o.option(
            "--samples N",
            "Also draw N random paths of every length, to see how far sampling gets.",
            o.MEASURING,
            min=0,
        ),
    ] = 0,
    no_logits: Annotated[
        bool,
        o.option("--no-logits", "Stop at the last layer: neither logits nor losses.", o.MEASURING),
    ] = False,
    loss: Annotated[
        Loss,
        o.option(
            "--loss",
            "The loss of the logits; auto takes what the model's head is for.",
            o.MEASURING,
        ),
    ] = "auto",
    output: Annotated[
        Path | None,
        o.option(
            "--output -o FILE", "Write the numbers (FILE.json) or a picture (FILE.svg).", o.OUTPUT
        ),
    ] = None,
) -> None:
    """Take one forward pass of MODEL apart by the number of attention hops.

    Exact with patterns, norm statistics and gates frozen: the share of every path length in the
    output, in the residual and in the logits, and the loss with at most so many hops.
    """
    _check_output(output)
    request.check()
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
    say_missing(voice, loaded)
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
