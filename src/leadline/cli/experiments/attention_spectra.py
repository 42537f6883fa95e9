"""`leadline reproduce attention-spectra`: the norms of attention matrices of several models."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from leadline.cli.experiments._shared import Folder, Models, deliver, load_named, ready, shown
from leadline.cli.request import options as o
from leadline.cli.screen.voice import Voice
from leadline.errors import LoadingError

_HUB = (
    "Without MODEL the note's three models are fetched from the hub; where none can be reached, "
    "give --random-init for the same shapes with random weights, or name local models."
)


def attention_spectra(
    models: Models = None,
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
        int | None,
        typer.Option(
            "--sentences",
            metavar="N",
            help="How many sentences of each kind to draw; 128 unless given.",
            rich_help_panel=o.INPUT,
            show_default=False,
        ),
    ] = None,
    as_in_the_note: Annotated[
        bool,
        typer.Option(
            "--as-in-the-note",
            help="Also measure with the padded rows kept, as the note did, to see the difference.",
            rich_help_panel=o.MEASURING,
        ),
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="16 sentences of each kind, and GPT-2-large is left out of the experiment's own "
            "models: half a minute or so.",
            rich_help_panel=o.MEASURING,
        ),
    ] = False,
    dtype: o.Dtype = None,
    device: o.Device = "cpu",
    seed: o.Seed = 0,
    output: Folder = None,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,  # main reads it
) -> None:
    """Spectral norms of attention matrices by layer: GPT-1, GPT-2, GPT-2-large or any models."""
    if random_init and models:
        raise LoadingError(
            "--random-init is for the experiment's own models; for others write random:TYPE, such "
            "as random:gpt2."
        )
    ready(output)
    with Voice(as_json=as_json, quiet=quiet) as voice:
        with voice.progress("Loading the models") as gauge:
            from leadline.experiments.attention_spectra import NOTE_MODELS, SENTENCES
            from leadline.experiments.attention_spectra import attention_spectra as experiment

            note_models = NOTE_MODELS[:2] if quick else NOTE_MODELS
            asked = models or [f"random:{m}" if random_init else m for m in note_models]
            if count is None:
                count = 16 if quick else SENTENCES
            hint = "" if models else _HUB
            outcome = experiment(
                {
                    shown(text): partial(
                        load_named, text, dtype=dtype, device=device, seed=seed, hint=hint
                    )
                    for text in asked
                },
                count=count,
                csv=tuple(csv or ()),
                as_in_the_note=as_in_the_note,
                seed=seed,
                progress=gauge,
                tell=gauge.tell,
            )
        deliver(voice, outcome, output)
