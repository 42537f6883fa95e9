"""What a page says first about a training run or a sweep: sentences and facts from the numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from leadline.reading.compare.training_curves import task_entropies
from leadline.reading.map.cells import is_sweep
from leadline.reading.map.text import map_answer, prediction_sentence
from leadline.reading.page.headline import Fact
from leadline.reading.show.wording import number
from leadline.reading.watch.state_words import few_samples_of
from leadline.record.provenance import number_at, text_at, value_at
from leadline.record.run.curve import joined_curve
from leadline.record.run.ending import ending_of, is_cell
from leadline.record.run.watching import LOSS, attempts_of, is_watched
from leadline.record.words.run_answer import loss_curve, run_answer

if TYPE_CHECKING:
    from leadline.reading.map.trainability import Trainability
    from leadline.record import Record

__all__ = ["kind_of_report", "run_facts", "run_sentences"]


def kind_of_report(record: Record) -> str:
    """Say what the page is about."""
    if is_sweep(record):
        return "Sweep report"
    return "Training report" if is_watched(record) or loss_curve(record) else "Depth report"


def run_sentences(record: Record, training_map: Trainability | None = None) -> list[str]:
    """Say what was trained and how it went; nothing about a record without runs.

    `training_map` is the map of a sweep.
    """
    if training_map is None:
        few = few_samples_of(record)
        return [*run_answer(record), *([few] if few else [])]
    shown = f"The charts over depth show the run {record.runs[0]!r}." if record.stacks else ""
    return [*map_answer(training_map), prediction_sentence(training_map), shown]


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
    if is_watched(record):
        return _watched_facts(record)
    curve = loss_curve(record)
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


def _watched_facts(record: Record) -> list[Fact]:
    """List how far a watched run is, its loss, how often it was read and what that cost."""
    known = record.provenance
    steps = int(number_at(known, "watch", "steps") or 0)
    closed = value_at(known, "watch", "closed") is True
    again = len(attempts_of(record)) - 1
    went_on = f", cut off {again} time{'' if again == 1 else 's'}" if again > 0 else ""
    facts = [Fact("Updates", f"{steps:,}", ("ended" if closed else "not closed") + went_on)]
    curve = joined_curve(record, LOSS.name)
    if curve is not None:
        facts.append(Fact("Loss", number(curve.last), f"{number(curve.first)} at the start"))
    every = number_at(known, "watch", "every")
    if every is not None:
        share = number_at(known, "watch", "overhead", "share")
        cost = "" if share is None else f"{100 * max(share, 0.0):.1f} % of the time"
        facts.append(Fact("Layers read", f"every {int(every):,} updates", cost))
    return facts
