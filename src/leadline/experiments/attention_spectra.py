"""Mean spectral norm of the attention matrices, layer by layer, of several models.

The experiment of a note on GPT-2: 128 sentences of 1 to 5 tokens and 128 of 12 to 18 go through
each model; of every head's attention matrix the largest singular value is taken, and its mean over
heads and sentences drawn over the layers.

The note padded its sentences to one length and kept the padded rows: a query of padding sees every
real key, so one real token padded to five gives sqrt(5) instead of 1. Here padded rows and columns
never enter; `as_in_the_note` measures both ways, so that the difference can be seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from leadline.errors import InputError, LeadlineError, LoadingError, Progress, no_progress
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
    from leadline.experiments.outcome.outcome import Outcome
    from leadline.models.inputs import Inputs
    from leadline.models.loading import LoadedModel
    from leadline.reading.show.panels import Line
    from leadline.record import Record

__all__ = ["NOTE_MODELS", "SENTENCES", "SETS", "AttentionSpectraOptions", "attention_spectra"]

SETS = ((1, 5), (12, 18))
QUANTITY = "attention.spectral_norm"
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
        from leadline.experiments.materials.named_models import loaders

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


@dataclass(frozen=True)
class _Set:
    """Sentences of one kind: drawn between two lengths, or read from a file."""

    name: str
    low: int = 0
    high: int = 0
    texts: tuple[str, ...] = ()


def attention_spectra(
    models: Mapping[str, Callable[[], LoadedModel]],
    *,
    count: int = SENTENCES,
    csv: Sequence[Path] = (),
    as_in_the_note: bool = False,
    seed: int = 0,
    progress: Progress = no_progress,
    tell: Callable[[str], None] = lambda _result: None,
) -> Outcome:
    """Mean spectral norm of attention per layer, of GPT-1, GPT-2, GPT-2-large or any models.

    `models` maps names to functions that load them: one stands in memory at a time. A model that
    cannot be loaded or measured is told of, and the others are measured all the same. `tell` gets
    the result of every model as soon as it is known, in a sentence.
    """
    from leadline.experiments.materials.sentences import read_sentences
    from leadline.experiments.outcome.outcome import Outcome

    if count < 1:
        raise InputError(f"{count} sentences were asked for; at least 1 is needed.")
    sets = [_Set(path.stem, texts=tuple(read_sentences(path))) for path in csv] or [
        _Set(f"{low} to {high} tokens", low, high) for low, high in SETS
    ]
    lines: list[Line] = []
    records: dict[str, Record] = {}
    failures: dict[str, str] = {}
    # Building or reading a model takes about as long as measuring one set.
    steps = 1 + len(sets) * (2 if as_in_the_note else 1)
    for number, (name, load) in enumerate(models.items()):

        def say(what: str, at: int, before: int = number * steps) -> None:
            progress(what, before + at, len(models) * steps)

        found: list[tuple[Line, Record]] = []
        try:
            say(f"loading {name}", 0)
            loaded = replace(load(), name=name)
            for kind, batch, padded, record in _measured(
                loaded, sets, count=count, both=as_in_the_note, seed=seed, say=say
            ):
                line = _line(record, name, kind, batch, padded=padded)
                found.append((line, record))
                tell(_result(line))
        except LeadlineError as error:
            if len(models) == 1:
                raise
            failures[name] = str(error)
            tell(f"{name}: {error}")
            continue
        lines += [line for line, _ in found]
        records |= {_file_name(line): record for line, record in found}
    if failures and not lines:
        name, why = next(iter(failures.items()))
        raise InputError(f"No model could be measured. {name}: {why}")
    if not lines:
        raise InputError("No model was given, so there is nothing to measure.")
    return Outcome(
        experiment="attention-spectra",
        title="Mean spectral norm of attention, layer by layer",
        value_label="mean ‖A‖₂ over heads and sentences",
        lines=tuple(lines),
        remarks=tuple(_remarks(lines)),
        records=records,
        failures=failures,
    )


def _measured(
    loaded: LoadedModel,
    sets: Sequence[_Set],
    *,
    count: int,
    both: bool,
    seed: int,
    say: Callable[[str, int], None],
) -> Iterator[tuple[_Set, Inputs, bool, Record]]:
    from leadline.instruments.passes.measurement import anatomy_of, measure

    anatomy = None
    step = 0
    for kind in sets:
        batch = _batch(loaded, kind, count=count, seed=seed)
        if anatomy is None:
            anatomy = anatomy_of(loaded.model, batch, seed=seed)
        for padded in (False, True) if both else (False,):
            step += 1
            kept = ", padding kept" if padded else ""
            say(f"measuring {loaded.name}, {kind.name}{kept}", step)
            record = measure(
                loaded.model,
                # Without a mask of its own the measurement takes padding for tokens.
                replace(batch, mask=None) if padded else batch,
                probes="attention",
                anatomy=anatomy,
                seed=seed,
                name=loaded.name,
                source=loaded.source,
            )
            yield kind, batch, padded, record


def _batch(loaded: LoadedModel, kind: _Set, *, count: int, seed: int) -> Inputs:
    from leadline.experiments.materials.sentences import lengths, random_rows, sentence_rows
    from leadline.models.inputs import vocabulary_size
    from leadline.models.inputs.text import inputs_from_rows, text_inputs

    if kind.texts:
        return text_inputs(list(kind.texts), loaded.tokenizer, loaded.model)
    wanted = lengths(kind.low, kind.high, count=count, seed=seed)
    if loaded.tokenizer is None:
        vocabulary = vocabulary_size(loaded.model)
        if vocabulary is None:
            raise InputError(f"{loaded.name} takes no tokens; this experiment needs some.")
        rows = random_rows(wanted, vocabulary=vocabulary, seed=seed)
        return replace(inputs_from_rows(rows, loaded.model, kind="random tokens"), seed=seed)
    rows, texts = sentence_rows(wanted, loaded.tokenizer, seed=seed)
    return inputs_from_rows(rows, loaded.model, kind="drawn sentences", preview=texts[0])


def _line(record: Record, name: str, kind: _Set, batch: Inputs, *, padded: bool) -> Line:
    from leadline.reading.show.panels import Line

    profile = record.by_layer(QUANTITY, point="attention")
    sizes = [batch.main.shape[1]] * len(batch.main)
    if batch.mask is not None and not padded:
        sizes = batch.mask.sum(1).tolist()
    return Line(
        panel=kind.name,
        name=f"{name}, padding kept" if padded else name,
        values=tuple(float(value) for value in profile.values),
        faint=padded,
        facts={
            "model": name,
            "sentences": len(sizes),
            "tokens": [min(sizes), max(sizes)],
            "least_possible": 1.0,
            "most_possible": sum(math.sqrt(size) for size in sizes) / len(sizes),
        },
    )


def _result(line: Line) -> str:
    """A curve in one sentence, for those who wait for the others."""
    last = len(line.values)
    at = max(range(last), key=lambda layer: line.values[layer])
    return (
        f"{line.name}, {line.panel}: mean norm {line.values[0]:.3f} at layer 1, "
        f"{line.values[-1]:.3f} at layer {last}, most {line.values[at]:.3f} at layer {at + 1}"
    )


def _file_name(line: Line) -> str:
    return "-".join(f"{line.name} {line.panel}".replace(",", "").replace("/", "-").split())


def _remarks(lines: Sequence[Line]) -> Iterator[str]:
    for panel in dict.fromkeys(line.panel for line in lines):
        here = [line for line in lines if line.panel == panel]
        for sizes in dict.fromkeys(tuple(line.facts["tokens"]) for line in here):
            alike = [line for line in here if tuple(line.facts["tokens"]) == sizes]
            rows = " to ".join(str(size) for size in dict.fromkeys(sizes))
            most = max(line.facts["most_possible"] for line in alike)
            yield (
                f"{panel}: {', '.join(line.name for line in alike)}: matrices of {rows} rows; "
                f"the mean norm lies between 1 and {most:.3f}, the mean of the square roots of "
                "the rows."
            )
    for padded in (line for line in lines if line.faint):
        right = next(
            line
            for line in lines
            if not line.faint
            and line.panel == padded.panel
            and line.facts["model"] == padded.facts["model"]
        )
        more = max(a - b for a, b in zip(padded.values, right.values, strict=True))
        yield f"{right.panel}: {right.name}: padded rows raise the mean norm by up to {more:.3f}."
