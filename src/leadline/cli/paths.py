"""`leadline paths`: one forward pass taken apart by the number of attention hops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from leadline.cli.request import options as o
from leadline.cli.request.models import AnatomyRequest
from leadline.cli.request.outputs import nothing_kept, say_missing, say_outputs, write_outputs
from leadline.cli.request.room import load_with_room
from leadline.cli.screen.voice import Voice, check_page, check_writable
from leadline.errors import RecordError

if TYPE_CHECKING:
    from leadline.record import Record

Loss = Literal["auto", "next-token", "masked", "random"]
_WRITES = {".leadline": "record is", ".json": "numbers are", ".svg": "picture is"}


def paths(
    voice: Voice,
    request: AnatomyRequest,
    samples: Annotated[
        int,
        o.option(
            "--samples N",
            "Also draw N random paths of every length, to see how far sampling gets.",
            o.MEASURING,
            least=0,
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
            "--output -o FILE",
            "Save the record (FILE.leadline), the numbers (FILE.json) or a picture (FILE.svg).",
            o.OUTPUT,
        ),
    ] = None,
    html: o.HtmlFile = None,
    dry_run: o.DryRun = False,
    anyway: o.Anyway = False,
    everything: o.Everything = False,
) -> None:
    """Take one forward pass of MODEL apart by the number of attention hops.

    Exact with patterns, norm statistics and gates frozen: the share of every path length in the
    output, in the residual and in the logits, and the loss with at most so many hops.
    """
    _check_outputs(output, html)
    request.check()
    if dry_run:
        from leadline.cli.screen.cost_screen import show_cost

        show_cost(voice, request, "paths", loss=loss)
        return
    with voice.progress("Loading the model") as gauge:
        from leadline.instruments.paths.recording import paths as measure_paths

        declared = request.declaration()
        loaded = load_with_room(voice, request, "paths", anyway=anyway, loss=loss)
        with nothing_kept("pass"):
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
        write_outputs(record, None, html)
    say_missing(voice, loaded)
    if output is not None:
        _write(record, output)

    voice.emit(record.paths.to_json)
    voice.show(record.screen(everything=everything).show)
    if output is not None:
        voice.say(f"The {_WRITES[output.suffix.lower()]} in {output}")
    say_outputs(voice, None, html)


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
