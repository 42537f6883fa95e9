"""`leadline collapse`: how far the tokens of one of our Transformers still differ, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from leadline.cli.request import options as o
from leadline.cli.request.models import ModelRequest
from leadline.cli.request.outputs import (
    check_outputs,
    nothing_kept,
    say_missing,
    say_outputs,
    write_outputs,
)
from leadline.cli.request.room import load_with_room
from leadline.cli.screen.voice import Voice

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class CollapseRequest(ModelRequest):
    """A Transformer of parts, or one that becomes one, with inputs."""

    random: Annotated[
        str | None,
        o.option(
            "--random EXAMPLESxLENGTH",
            "Random inputs of this size; 1x32 when no input is given.",
            o.INPUT,
        ),
    ] = None

    usual_random: ClassVar[str | None] = "1x32"


def collapse(
    voice: Voice,
    request: CollapseRequest,
    bounds: Annotated[
        bool,
        o.option(
            "--bounds", "Also set the theorems on rank collapse beside every example.", o.MEASURING
        ),
    ] = False,
    output: o.RecordFile = None,
    html: o.HtmlFile = None,
    dry_run: o.DryRun = False,
    anyway: o.Anyway = False,
    everything: o.Everything = False,
) -> None:
    """Follow how far tokens still differ, layer by layer, without cancellation.

    The residual |X - 1 m'|_F and its share of |X|_F as logarithms, right to many digits where a
    plain forward pass shows rounding, with an estimate of the error. MODEL is made of parts
    (--recipe), or one that becomes a Transformer of parts: GPT-2, Llama, BERT and their kin.
    `leadline bounds` reads the record that -o saves.
    """
    check_outputs(output, html)
    request.check()
    if dry_run:
        from leadline.cli.screen.cost_screen import show_cost

        show_cost(voice, request, "collapse")
        return
    with voice.progress("Loading the model") as gauge:
        from leadline.instruments.collapse.recording import collapse as follow
        from leadline.parts import Transformer

        loaded = load_with_room(voice, request, "collapse", anyway=anyway)
        module = loaded.model
        ours = module if isinstance(module, Transformer) else Transformer.from_hf(module)
        with nothing_kept("pass"):
            record = follow(
                ours,
                request.inputs(loaded),
                facts=bounds or output is not None or html is not None,
                seed=request.seed,
                name=loaded.name,
                source=loaded.source,
                progress=gauge,
            )
        write_outputs(record, output, html)
    say_missing(voice, loaded)
    voice.emit(record.collapse.to_json)
    voice.show(record.screen(everything=everything).show)
    if bounds:
        from leadline.reading.bounds.evaluate import bounds as bounds_of

        table = bounds_of(record)
        voice.say("")
        voice.show(table.screen().show)
    say_outputs(voice, output, html)
