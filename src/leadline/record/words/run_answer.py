"""What the record of a training run answers: whether the model has learned, and what moved."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from leadline.record.provenance import number_at
from leadline.record.run.curve import curves_of
from leadline.record.run.ending import ending_of, ending_text
from leadline.record.run.training import GAUGES, VALIDATION_LOSS
from leadline.record.run.watching import is_watched
from leadline.record.words.course import STEADY
from leadline.record.words.numbers import format_number
from leadline.record.words.places import opening
from leadline.record.words.watch_answer import watch_answer

if TYPE_CHECKING:
    from leadline.record.record import Record
    from leadline.record.run.curve import Curve

__all__ = ["LEARNED", "loss_curve", "run_answer"]

LEARNED = 0.3
"""A run has learned from so many nats below the unigram entropy on: chance differences between
runs that only know the frequencies of the symbols are a few hundredths of a nat."""
MOVED = 0.1
"""A cosine that a run changes by less than this is not told."""


def run_answer(record: Record) -> list[str]:
    """Say whether a training run has learned, and how it ended; nothing without a run."""
    if is_watched(record):
        return watch_answer(record)
    curve = loss_curve(record)
    return [] if curve is None else [*_loss_sentences(record, curve), *_gauge_sentences(record)]


def _loss_sentences(record: Record, curve: Curve) -> list[str]:
    ending = ending_of(record)
    if ending is not None and ending.diverged:
        read = (
            f"The last validation loss, {format_number(curve.last, digits=3)} nats, was read before, "
            f"at step {curve.steps[-1]}."
        )
        return [ending.sentence, *([read] if math.isfinite(curve.last) else [])]
    if not math.isfinite(curve.last):
        return [f"The validation loss is not a number at step {curve.steps[-1]}: the run diverged."]
    steps = curve.steps[-1] if ending is None else ending.steps
    first, last = (format_number(value, digits=3) for value in (curve.first, curve.last))
    sentence = f"The validation loss went from {first} to {last} nats in {steps} steps"
    unigram = number_at(record.provenance, "task", "unigram")
    if unigram is not None:
        below = unigram - curve.last
        side = "below" if below >= 0 else "above"
        apart = format_number(abs(below), digits=3)
        sentence = f"{_learned(below, rise=curve.last - curve.first)}: {sentence[:1].lower()}{sentence[1:]}"
        sentence += f", {apart} {side} the unigram entropy of its task"
    finished = ending is not None and ending.status == "finished"
    ended = "" if finished else ending_text(record.provenance)
    return [f"{sentence}.", *([ended] if ended else [])]


def _gauge_sentences(record: Record) -> list[str]:
    """Say which gauges of a run moved between their first and their last reading."""
    told: list[str] = []
    for gauge in GAUGES:
        curve = next(iter(curves_of(record, gauge.name)), None) if gauge.name in record else None
        if curve is None or len(curve) < 2:
            continue
        first, last = curve.first, curve.last
        if gauge.scale == "log":
            still = 0 < first < math.inf and first / STEADY < last < first * STEADY
        else:
            still = abs(last - first) < MOVED
        if not still:
            ends = " to ".join(format_number(value, digits=3) for value in (first, last))
            steps = f"between steps {curve.steps[0]} and {curve.steps[-1]}"
            told.append(f"{opening(gauge.title)} from {ends} {steps}")
    return [f"Gauges that moved: {'; '.join(told)}."] if told else []


def loss_curve(record: Record) -> Curve | None:
    """Return the validation loss of a record that holds one run."""
    if VALIDATION_LOSS.name not in record.quantities or len(record.runs) != 1:
        return None
    return next(iter(curves_of(record, VALIDATION_LOSS.name)), None)


def _learned(below: float, *, rise: float) -> str:
    if below >= LEARNED:
        return "The model has learned"
    if rise > LEARNED:
        return "Training has done harm"
    return "The model has learned no more than how frequent the symbols are"
