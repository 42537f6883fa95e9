"""Options of attention-spectra."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from leadline.errors import LoadingError, Progress
from leadline.experiments.experiment import (
    EXPERIMENTS,
    INPUT,
    MEASURING,
    MODEL,
    ExperimentOptions,
    option,
    shared_option,
)

if TYPE_CHECKING:
    from leadline.experiments.outcome import Outcome

__all__ = ["NOTE_MODELS", "SENTENCES", "AttentionSpectraOptions"]

NOTE_MODELS = ("openai-gpt", "gpt2", "gpt2-large")
SENTENCES = 128
_HUB = (
    "Without MODEL the note's three models are fetched from the hub; where none can be reached, "
    "give --random-init for the same shapes with random weights, or name local models."
)


@EXPERIMENTS.register("attention-spectra")
@dataclass(frozen=True)
class AttentionSpectraOptions(ExperimentOptions):
    """Spectral norms of attention matrices by layer: GPT-1, GPT-2, GPT-2-large or any models."""

    group = MEASURING
    redoes = "figures 5, 6 and 7 of the deep-dive note"
    work = "leadline.experiments.attention_spectra:attention_spectra"
    beginning = "Loading the models"
    quick_text = (
        "16 sentences of each kind, and GPT-2-large is left out of the experiment's own "
        "models: half a minute or so."
    )
    keeps_records = True

    models: tuple[str, ...] = shared_option(())
    note_models: tuple[str, ...] = option(NOTE_MODELS, quick=NOTE_MODELS[:2])
    """What is measured where no models are named."""
    random_init: bool = option(
        False, "The experiment's own models with random weights: needs no hub.", group=MODEL
    )
    csv: tuple[Path, ...] = option(
        (),
        "Sentences from a CSV file with a column token_sequence; may be repeated.",
        group=INPUT,
        metavar="FILE.csv",
    )
    sentences: int = option(
        SENTENCES,
        "How many sentences of each kind to draw; {default} unless given.",
        group=INPUT,
        quick=16,
    )
    as_in_the_note: bool = option(
        False, "Also measure with the padded rows kept, as the note did, to see the difference."
    )
    dtype: str | None = shared_option(None)
    device: str = shared_option("cpu")

    def __post_init__(self) -> None:
        if self.random_init and self.models:
            raise LoadingError(
                "--random-init is for the experiment's own models; for others write random:TYPE, "
                "such as random:gpt2."
            )

    def run(
        self, *, folder: Path | None, progress: Progress, tell: Callable[[str], None]
    ) -> Outcome:
        """Measure the models that were named, or the note's own."""
        from leadline.experiments.named_models import loaders

        prefix = "random:" if self.random_init else ""
        return self.function()(
            loaders(
                self.models or [f"{prefix}{name}" for name in self.note_models],
                dtype=self.dtype,
                device=self.device,
                seed=self.seed,
                hint="" if self.models else _HUB,
            ),
            count=self.sentences,
            csv=self.csv,
            as_in_the_note=self.as_in_the_note,
            seed=self.seed,
            progress=progress,
            tell=tell,
        )
