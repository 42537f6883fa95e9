"""`leadline reproduce`: a noted experiment once more, with its table and its picture."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leadline.cli import _options as o
from leadline.cli._voice import Voice, check_writable
from leadline.errors import LoadingError

if TYPE_CHECKING:
    from leadline.loading import LoadedModel

_HUB = (
    "Without MODEL the note's three models are fetched from the hub; where none can be reached, "
    "give --random-init for the same shapes with random weights, or name local models."
)

_SHAPES = {"gpt2-large": ("gpt2", {"n_layer": 36, "n_embd": 1280, "n_head": 20})}
"""Sizes of models whose type alone does not tell them (Radford et al. 2019, table 2)."""


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="The experiment: attention-spectra.", show_default=False
        ),
    ],
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL",
            help="Hub ids, local folders, .gguf files, package.module:function; recipe:NAME for a "
            "Transformer of a recipe, random:TYPE for random weights. The experiment's own models "
            "otherwise.",
            show_default=False,
        ),
    ] = None,
    random_init: Annotated[
        bool,
        typer.Option(
            "--random-init",
            help="The experiment's own models with random weights: needs no hub.",
            rich_help_panel=o.MODEL,
        ),
    ] = False,
    csv: Annotated[
        list[Path] | None,
        typer.Option(
            "--csv",
            metavar="FILE.csv",
            help="Sentences from a CSV file with a column token_sequence; may be repeated.",
            rich_help_panel=o.INPUT,
            show_default=False,
        ),
    ] = None,
    count: Annotated[
        int,
        typer.Option(
            "--sentences",
            metavar="N",
            help="How many sentences of each kind to draw.",
            rich_help_panel=o.INPUT,
        ),
    ] = 128,
    as_in_the_note: Annotated[
        bool,
        typer.Option(
            "--as-in-the-note",
            help="Also measure with the padded rows kept, as the note did, to see the difference.",
            rich_help_panel=o.MEASURING,
        ),
    ] = False,
    dtype: o.Dtype = None,
    device: o.Device = "cpu",
    seed: o.Seed = 0,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            help="Write picture (SVG), table (CSV) and records into this folder.",
            rich_help_panel=o.OUTPUT,
            show_default=False,
        ),
    ] = None,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,  # main reads it
) -> None:
    """Do a noted experiment again: table, picture, records."""
    if random_init and models:
        raise LoadingError(
            "--random-init is for the experiment's own models; for others write random:TYPE, such "
            "as random:gpt2."
        )
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        check_writable(output / "table.csv", "table")
    with Voice(as_json=as_json, quiet=quiet) as voice:
        with voice.progress("Loading the models") as gauge:
            from leadline.reproduce import EXPERIMENTS
            from leadline.reproduce.attention_spectra import NOTE_MODELS

            experiment = EXPERIMENTS.get(name)
            asked = models or [f"random:{m}" if random_init else m for m in NOTE_MODELS]
            outcome = experiment(
                {
                    _shown(text): partial(
                        _load, text, dtype=dtype, device=device, seed=seed, own=not models
                    )
                    for text in asked
                },
                count=count,
                csv=tuple(csv or ()),
                as_in_the_note=as_in_the_note,
                seed=seed,
                progress=gauge,
            )
        from leadline.reporting.outcome import show_outcome, write_outcome

        voice.show(lambda console: show_outcome(outcome, console))
        voice.emit(outcome.to_json)
        if output is not None:
            write_outcome(outcome, output)
            voice.say(f"Picture, table and records are in {output}")
        if outcome.failures:
            for why in outcome.failures.values() if quiet or as_json else ():
                print(f"leadline: {why}", file=sys.stderr)
            raise typer.Exit(2)


def _shown(text: str) -> str:
    """What a model is called in the table: the last part of a path, or its type."""
    kind, colon, rest = text.partition(":")
    if colon and kind in ("random", "recipe"):
        return f"{rest} ({kind})"
    path = Path(text)
    if not path.exists():
        return text
    return path.parent.name if path.name == "model" else path.stem


def _load(text: str, *, dtype: str | None, device: str, seed: int, own: bool) -> LoadedModel:
    from leadline.loading import load_model

    kind, colon, rest = text.partition(":")
    prefixed = bool(colon) and kind in ("random", "recipe")
    source, overrides = rest if prefixed else text, {}
    if prefixed and kind == "random":
        source, overrides = _SHAPES.get(rest, (rest, {}))
    try:
        return load_model(
            source,
            random_init=prefixed and kind == "random",
            recipe=prefixed and kind == "recipe",
            overrides=overrides,
            dtype=dtype,
            device=device,
            seed=seed,
        )
    except LoadingError as error:
        if own and not prefixed:
            raise LoadingError(f"{error} {_HUB}") from error
        raise
