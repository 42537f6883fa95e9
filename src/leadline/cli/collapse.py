"""`leadline collapse`: how far the tokens of one of our Transformers still differ, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from leadline.cli.request import options as o
from leadline.cli.request.models import ModelRequest, takes_request
from leadline.cli.request.outputs import (
    HtmlFile,
    RecordFile,
    check_outputs,
    say_outputs,
    write_outputs,
)
from leadline.cli.screen.voice import Voice
from leadline.errors import InputError

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class CollapseRequest(ModelRequest):
    """A Transformer of parts, or one that becomes one, with inputs."""

    random: Annotated[
        str | None,
        typer.Option(
            "--random",
            metavar="EXAMPLESxLENGTH",
            help="Random inputs of this size; 1x32 when no input is given.",
            rich_help_panel=o.INPUT,
            show_default=False,
        ),
    ] = None

    usual_random: ClassVar[str | None] = "1x32"


@takes_request
def collapse(
    request: CollapseRequest,
    bounds: Annotated[
        bool,
        typer.Option(
            "--bounds",
            help="Also set the theorems on rank collapse beside every example.",
            rich_help_panel=o.MEASURING,
        ),
    ] = False,
    output: RecordFile = None,
    html: HtmlFile = None,
    everything: o.Everything = False,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,  # main reads it
) -> None:
    """Follow how far tokens still differ, layer by layer, without cancellation.

    The residual |X - 1 m'|_F and its share of |X|_F as logarithms, right to many digits where a
    plain forward pass shows rounding, with an estimate of the error. MODEL is made of parts
    (--recipe), or one that becomes a Transformer of parts: GPT-2, Llama, BERT and their kin.
    `leadline bounds` reads the record that -o saves.
    """
    check_outputs(output, html)
    request.check()
    with Voice(as_json=as_json, quiet=quiet) as voice:
        with voice.progress("Loading the model") as gauge:
            from leadline.instruments.collapse.recording import collapse as follow
            from leadline.parts import Transformer

            loaded = request.load()
            module = loaded.model
            ours = module if isinstance(module, Transformer) else Transformer.from_hf(module)
            try:
                record = follow(
                    ours,
                    request.inputs(loaded),
                    facts=bounds or output is not None or html is not None,
                    seed=request.seed,
                    name=loaded.name,
                    source=loaded.source,
                    progress=gauge,
                )
            except KeyboardInterrupt:
                raise InputError("The pass was interrupted, and nothing of it is kept.") from None
            write_outputs(record, output, html)
        if loaded.missing:
            voice.note(f"Not in the file, so random: {', '.join(loaded.missing)}.")
        voice.emit(record.collapse.to_json)
        voice.show(record.screen(everything=everything).show)
        if bounds:
            from leadline.reading.bounds.evaluate import bounds as bounds_of

            table = bounds_of(record)
            voice.say("")
            voice.show(table.screen().show)
        say_outputs(voice, output, html)
