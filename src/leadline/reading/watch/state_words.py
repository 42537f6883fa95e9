"""How a run is doing, in a sentence; and whether its writer is at work, in another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from leadline.reading.watch.history import History
from leadline.reading.watch.robust import LEAST_SAMPLES
from leadline.record.provenance import number_at, text_at, value_at
from leadline.record.rows.site import RUN
from leadline.record.run.trend import trend_of
from leadline.record.run.watching import Attempt
from leadline.record.words.numbers import format_clock
from leadline.record.words.watch_answer import count_warnings, earlier_warnings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leadline.reading.watch.sight import RunSight
    from leadline.record import Record

__all__ = [
    "answer_sentence",
    "detail_sentence",
    "few_samples",
    "few_samples_of",
    "state_sentence",
]

_LOSSES = {"train.loss": "loss", "validation.loss": "validation loss"}
MOST_NOTES = 2
"""So many of the watch's own notes are shown, the last ones."""
JUST_NOW = 2.0
"""Seconds within which something came just now."""


def answer_sentence(sight: RunSight) -> str:
    """Say how the run is doing: its step, its loss and trend, and how many warnings there are."""
    if sight.state == "waiting":
        return f"There is no file {sight.name} yet: waiting for it, {ago(sight.quiet)} so far."
    step = sight.history.step
    if not step and not _has_loss(sight):
        return f"{sight.name} is there, and no sample has come yet."
    words = [_run_words(sight), _loss_words(sight)]
    sentence = ", ".join(word for word in words if word)
    if sight.findings:
        warnings = f"{count_warnings(sight.findings)}."
    else:  # of a run that nobody watched nobody can say that nothing is unusual
        few = few_samples(sight.history)
        unusual = f"Nothing unusual in {few}." if few else "Nothing unusual."
        warnings = unusual if sight.asked else ""
    return f"{sentence[:1].upper()}{sentence[1:]}. {warnings}".rstrip()


def state_sentence(sight: RunSight) -> str:
    """Say whether rows still come."""
    if sight.state == "waiting":
        return "Ctrl-C ends the waiting."
    return f"{sight.name or 'The record'}: {_state_words(sight)}."


def detail_sentence(sight: RunSight) -> str:
    """Say how often layers are read, what that costs, and what could not be watched."""
    words = [one.rstrip(".") for one in earlier_warnings(sight.earlier)]
    every = number_at(sight.provenance, "watch", "every")
    if every is not None:
        often = "at every update" if every == 1 else f"every {int(every):,} updates"
        words.append(f"{'E' if not words else 'e'}very layer is read {often}")
    trained, all_of_it = (
        number_at(sight.provenance, "watch", "parameters", one) for one in ("trained", "all")
    )
    if trained is not None and all_of_it and trained < all_of_it:
        words.append(
            f"{int(trained):,} of {int(all_of_it):,} parameters are trained, the others frozen"
        )
    share = number_at(sight.provenance, "watch", "overhead", "share")
    if share is not None:
        words.append(f"watching took {100 * max(share, 0.0):.1f} % of the time")
    notes: Any = value_at(sight.provenance, "watch", "notes")
    sentences = [f"{'; '.join(words)}."] if words else []
    if isinstance(notes, list):
        sentences += [str(note) for note in notes[-MOST_NOTES:]]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return " ".join(sentences)


def few_samples(history: History) -> str:
    """Say how many samples of the layers there are, where most alarms need more."""
    counts = [
        len(one)
        for by_site in history.series.values()
        for site, one in by_site.items()
        if site.stack != RUN.stack
    ]
    count = max(counts, default=0)
    if not 0 < count <= LEAST_SAMPLES:
        return ""
    noun = "sample" if count == 1 else "samples"
    return f"{count} {noun} of the {LEAST_SAMPLES + 1} that most alarms need"


def few_samples_of(record: Record) -> str:
    """The same of a run in a record, as a sentence; nothing where no alarm was asked, or one spoke."""
    if record.findings or not {"watch", "outcome"} & record.provenance.keys():
        return ""
    few = few_samples(History.of(record))
    return f"No alarm spoke in {few}: sample more often." if few else ""


def ago(seconds: float | None) -> str:
    """Say how long: `7 s`, `12:30 min`, `1:02:03 h`."""
    if seconds is None:
        return "0 s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{format_clock(seconds)} {'h' if seconds >= 3600 else 'min'}"


def _run_words(sight: RunSight) -> str:
    step = f"step {sight.history.step:,}"
    name = text_at(sight.provenance, "model", "name")
    of = f" of {name}" if name else ""
    if sight.state == "died":
        return f"the run{of} was cut off at {step}"
    if sight.state == "closed":
        return f"the run{of} {_end_words(sight, step)}"
    return f"{step}{of}"


def _end_words(sight: RunSight, step: str) -> str:
    noted = value_at(sight.provenance, "watch", "attempts")
    attempts = cast("list[Mapping[str, Any]]", noted) if isinstance(noted, list) else []
    error = Attempt.of(attempts[-1]).error if attempts else ""
    if error.startswith("TrainingStopped"):
        return f"was stopped by the watch at {step}"
    return (
        f"ended at {step} with an error ({error.rstrip('.')})" if error else f"has ended at {step}"
    )


def _loss_words(sight: RunSight) -> str:
    for name, words in _LOSSES.items():
        series = sight.history.of_run(name)
        trend = None if series is None else trend_of(series.steps, series.values)
        if trend is not None:
            return f"{words} {trend.words}"
    return "no loss was seen"


def _has_loss(sight: RunSight) -> bool:
    return any(sight.history.of_run(name) is not None for name in _LOSSES)


def _state_words(sight: RunSight) -> str:
    writer = "its writer" if sight.writer is None else str(sight.writer)
    silence = f"nothing has come since {sight.since}, for {ago(sight.quiet)}"
    if sight.state == "closed":
        return "closed"
    if sight.state == "died":
        kept = (
            ""
            if sight.ring is None
            else f"; the last updates, up to {sight.ring:,}, are read from the ring beside it"
        )
        return f"{writer} is gone; {silence}{kept}; a run that goes on will show here"
    if sight.state == "silent":
        return f"{silence}, and {_whether_it_lives(sight, writer)}"
    if sight.quiet is None:
        return "not closed"
    if sight.state == "starting" and sight.writer is None:
        return "empty so far, and nobody has it open for writing"
    locked = ", the file is locked just now" if sight.busy else ""
    last = "just now" if sight.quiet < JUST_NOW else f"{ago(sight.quiet)} ago"
    return f"{writer} is writing, the last rows came {last}{locked}"


def _whether_it_lives(sight: RunSight, writer: str) -> str:
    if sight.writer is None:
        return "nobody has the file open for writing"
    if sight.writer.lives is None:
        return f"{writer} cannot be asked from here"
    return f"{writer} still runs"
