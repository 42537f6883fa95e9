"""What a page says first about a training run or a sweep: sentences and facts from the numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from leadline.reading.compare.training_curves import task_entropies
from leadline.reading.map.cells import is_sweep
from leadline.reading.map.text import prediction_sentence, usable_text
from leadline.reading.page.headline import Fact
from leadline.reading.show.wording import number
from leadline.record.provenance import number_at, text_at
from leadline.record.run.curve import curves_of
from leadline.record.run.ending import ending_of, ending_text, is_cell
from leadline.record.run.training import VALIDATION_LOSS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.reading.map.trainability import Trainability
    from leadline.record import Record
    from leadline.record.run.curve import Curve

__all__ = ["comparing_run_sentences", "kind_of_report", "run_facts", "run_sentences"]


def kind_of_report(record: Record) -> str:
    """Say what the page is about."""
    if is_sweep(record):
        return "Sweep report"
    return "Training report" if _loss(record) else "Depth report"


def run_sentences(record: Record, training_map: Trainability | None = None) -> list[str]:
    """Say what was trained and how it went; nothing about a record without runs.

    `training_map` is the map of a sweep.
    """
    if training_map is not None:
        lines = [
            f"Usable {training_map.axis} {reached}: {'; '.join(rows)}."
            for reached, rows in _by_usable(training_map).items()
        ]
        shown = f"The charts over depth show the run {record.runs[0]!r}." if record.stacks else ""
        return [*(lines or ["No cell has ended yet."]), prediction_sentence(training_map), shown]
    curve = _loss(record)
    if curve is None:
        return []
    ending = ending_of(record)
    if ending is not None and ending.diverged:
        step, value = curve.steps[-1], curve.last
        read = f"The last validation loss, {number(value)} nats, was read before, at step {step}."
        return [ending.sentence, read if math.isfinite(value) else ""]
    if not math.isfinite(curve.last):
        return [f"The validation loss is not a number at step {curve.steps[-1]}: the run diverged."]
    sentence = (
        f"The validation loss went from {number(curve.first)} to {number(curve.last)} nats in "
        f"{curve.steps[-1] if ending is None else ending.steps} steps"
    )
    unigram = task_entropies(record).get("unigram")
    if unigram is not None:
        apart = unigram - curve.last
        side = "below" if apart >= 0 else "above"
        sentence += f", {number(abs(apart))} {side} the unigram entropy of its task"
    finished = ending is not None and ending.status == "finished"
    return [f"{sentence}.", "" if finished else ending_text(record.provenance)]


def comparing_run_sentences(records: Sequence[Record], names: Sequence[str]) -> list[str]:
    """Say where the validation losses of several training runs end."""
    ends: list[str] = []
    for record, name in zip(records, names, strict=True):
        curve, ending = _loss(record), ending_of(record)
        if curve is None:
            continue
        if ending is not None and ending.diverged:
            ends.append(f"{name} diverged at step {ending.steps}")
        else:
            ends.append(f"{name} {number(curve.last)} at step {curve.steps[-1]}")
    return [f"Validation loss at the end: {'; '.join(ends)}."] if len(ends) > 1 else []


def run_facts(record: Record) -> list[Fact]:
    """List what was trained: cells and seeds of a sweep; steps, loss and task of a run."""
    known = record.provenance
    if is_sweep(record):
        ended = [entry for key, entry in known.items() if is_cell(key)]
        cell_count = int(number_at(known, "sweep", "cells") or len(ended))
        seeds = known["sweep"].get("seeds") or ()
        seconds = math.fsum(number_at(entry, "seconds") or 0.0 for entry in ended)
        return [
            Fact("Cells", f"{len(ended)} of {cell_count}", "ended"),
            Fact("Seeds", str(len(seeds)), ", ".join(map(str, seeds))),
            Fact("Tasks", ", ".join(known.get("tasks") or ()) or "unknown", ""),
            Fact("Time in cells", f"{seconds / 60:.1f} min", "all workers together"),
        ]
    curve = _loss(record)
    if curve is None:
        return []
    ending = ending_of(record)
    steps = curve.steps[-1] if ending is None else ending.steps
    has_diverged = ending is not None and ending.diverged
    facts = [
        Fact("Steps", f"{steps:,}", "" if ending is None else ending.words),
        Fact(
            "Validation loss",
            "diverged" if has_diverged else number(curve.last),
            f"{number(curve.first)} at the start",
        ),
    ]
    entropies = task_entropies(record)
    if entropies:
        detail = ", ".join(f"{kind} {number(value)}" for kind, value in entropies.items())
        facts.append(Fact("Task", text_at(known, "task", "name") or "unknown", detail))
    parameters = number_at(known, "model", "parameters")
    if parameters is not None and not record.stacks:
        facts.append(Fact("Parameters", f"{parameters:,.0f}", text_at(known, "model", "dtype")))
    return facts


def _by_usable(training_map: Trainability) -> dict[str, list[str]]:
    """The names of the rows by how deep they train."""
    groups: dict[str, list[str]] = {}
    for row in training_map.rows:
        groups.setdefault(usable_text(row), []).append(row.name)
    return groups


def _loss(record: Record) -> Curve | None:
    """The validation loss of a record that holds one run."""
    if VALIDATION_LOSS.name not in record.quantities or len(record.runs) != 1:
        return None
    return next(iter(curves_of(record, VALIDATION_LOSS.name)), None)
