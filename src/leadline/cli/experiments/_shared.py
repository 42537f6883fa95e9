"""What the experiments' commands share: models by name, and where an outcome goes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leadline.cli.request import options as o
from leadline.cli.screen.voice import Voice, check_writable
from leadline.errors import InputError, LoadingError

if TYPE_CHECKING:
    from leadline.experiments.outcome import Outcome
    from leadline.models.loading import LoadedModel

__all__ = [
    "EXPERIMENT",
    "Depths",
    "Folder",
    "Models",
    "PictureFolder",
    "deliver",
    "depths_of",
    "load_named",
    "ready",
    "shown",
]

EXPERIMENT = "Experiment"
"""The panel of the help in which an experiment's own options stand."""

Models = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MODEL",
        help="Hub ids, local folders, .gguf files, package.module:function; recipe:NAME for a "
        "Transformer of a recipe, random:TYPE for random weights. The experiment's own models "
        "otherwise.",
        show_default=False,
    ),
]
Depths = Annotated[
    str | None,
    typer.Option(
        "--depths",
        metavar="N,N",
        help="Layers of the models: 6,12,24,48,96 unless given.",
        rich_help_panel=EXPERIMENT,
        show_default=False,
    ),
]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FOLDER",
        help="Write picture (SVG), table (CSV) and records into this folder.",
        rich_help_panel=o.OUTPUT,
        show_default=False,
    ),
]
PictureFolder = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FOLDER",
        help="Write picture.svg (the curves) and table.csv (all numbers) into this folder.",
        rich_help_panel=o.OUTPUT,
        show_default=False,
    ),
]
_SHAPES = {"gpt2-large": ("gpt2", {"n_layer": 36, "n_embd": 1280, "n_head": 20})}
"""Sizes of models whose type alone does not tell them (Radford et al. 2019, table 2)."""


def depths_of(text: str | None) -> tuple[int, ...] | None:
    """The depths of `--depths 6,12,24`; None where none were given."""
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(
            f"--depths is {text!r}; give whole numbers with commas between them, such as 6,12,24."
        ) from None


def ready(output: Path | None) -> None:
    """Make the folder, or say at once why it cannot be written to."""
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        check_writable(output / "table.csv", "table")


def deliver(voice: Voice, outcome: Outcome, output: Path | None) -> None:
    """Print the outcome, write its files; leave with 2 where a model could not be measured."""
    from leadline.experiments.picture import show_outcome, write_outcome

    voice.show(lambda console: show_outcome(outcome, console))
    voice.emit(outcome.to_json)
    if output is not None:
        write_outcome(outcome, output)
        what = "Picture, table and records are" if outcome.records else "Picture and table are"
        voice.say(f"{what} in {output}")
    if outcome.failures:
        for why in outcome.failures.values() if voice.quiet or voice.as_json else ():
            print(f"leadline: {why}", file=sys.stderr)
        raise typer.Exit(2)


def shown(text: str) -> str:
    """What a model is called in the table: the last part of a path, or its type."""
    kind, colon, rest = text.partition(":")
    if colon and kind in ("random", "recipe"):
        return f"{rest} ({kind})"
    path = Path(text)
    if not path.exists():
        return text
    return path.parent.name if path.name == "model" else path.stem


def load_named(
    text: str, *, dtype: str | None, device: str, seed: int, hint: str = ""
) -> LoadedModel:
    from leadline.models.loading import load_model

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
        if hint and not prefixed:
            raise LoadingError(f"{error} {hint}") from error
        raise
