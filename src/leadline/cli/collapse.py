"""`leadline collapse`: how far the tokens of one of our Transformers still differ, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import typer

from leadline.cli.request import options as o
from leadline.cli.request.models import ModelRequest, takes_request
from leadline.cli.screen.voice import Voice


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
            help="Also set the theorems on rank collapse beside the first example.",
            rich_help_panel=o.MEASURING,
        ),
    ] = False,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,  # main reads it
) -> None:
    """Follow how far tokens still differ, layer by layer, without cancellation.

    The residual |X - 1 m'|_F and its share of |X|_F as logarithms, right to many digits where a
    plain forward pass shows rounding, with an estimate of the error. MODEL is made of parts
    (--recipe), or one that becomes a Transformer of parts: GPT-2, Llama, BERT and their kin.
    """
    request.check()
    with Voice(as_json=as_json, quiet=quiet) as voice:
        with voice.progress("Loading the model") as gauge:
            from leadline.instruments.collapse.measure import collapse as follow
            from leadline.parts import Transformer

            loaded = request.load()
            module = loaded.model
            ours = module if isinstance(module, Transformer) else Transformer.from_hf(module)
            batch = request.inputs(loaded)
            found = follow(ours, batch, facts=bounds, seed=request.seed, progress=gauge)
        voice.emit(found.to_json)
        voice.say(str(found))
        facts = (found.examples[0] if found.examples else found).facts
        if facts is not None:
            from leadline.reading.bounds.evaluate import bounds as bounds_of
            from leadline.reading.page import show_bounds

            table = bounds_of(facts)
            voice.say("")
            voice.show(lambda console: show_bounds(table, console, heads=False))
