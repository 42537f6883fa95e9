"""What the record of a watched run answers: how far it is, how its loss does, what went wrong."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from leadline.errors import join_words
from leadline.record.provenance import number_at, value_at
from leadline.record.rows.finding import SEVERITIES
from leadline.record.run.curve import joined_curve
from leadline.record.run.trend import trend_of
from leadline.record.run.watching import LOSS, attempts_of
from leadline.record.words.numbers import format_number
from leadline.record.words.screen import Sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leadline.record.record import Record
    from leadline.record.rows.finding import Finding
    from leadline.record.run.trend import Trend
    from leadline.record.run.watching import Attempt

__all__ = [
    "batch_words",
    "below_warning",
    "count_warnings",
    "earlier_warnings",
    "warning_place",
    "watch_answer",
]

MOST_NAMED = 3
"""So many warnings are named in the answer; more of them are counted."""
LONGEST_BATCH = 80
"""So many characters of a batch's name are shown."""
FIRST_BATCHES = 4
"""So many batches of a warning are named beside the last one."""
_NOUNS = {"serious": "serious warning", "warning": "warning", "note": "note"}


def watch_answer(record: Record) -> list[str]:
    """Say in a sentence how a watched run went or goes, then what else a reader must know."""
    curve = joined_curve(record, LOSS.name)
    trend = None if curve is None else trend_of(np.array(curve.steps), curve.values)
    provenance = record.provenance
    done = max(
        int(number_at(provenance, "watch", "steps") or 0), 0 if trend is None else trend.step
    )
    updates = f"{done:,} update{'' if done == 1 else 's'}"
    closed = value_at(provenance, "watch", "closed") is True
    run = f"A run of {updates}" if closed else f"A run that has made {updates} so far"
    sentence = f"{run}, {_loss_words(trend)}; {_warning_words(record.findings)}."
    return [sentence, *_attempt_sentences(record), *earlier_warnings(record.replaced_findings)]


def earlier_warnings(findings: Sequence[Finding]) -> list[str]:
    """Say what was warned of in updates that the run has made again since."""
    if not findings:
        return []
    words = _warning_words(findings)
    return [f"Before it went back to an earlier step it had {words}."]


def count_warnings(findings: Sequence[Finding]) -> str:
    """Count warnings by how bad they are: `1 serious warning and 2 warnings`; empty for none."""
    counts = Counter(finding.severity for finding in findings)
    return join_words(
        f"{counts[severity]} {_NOUNS[severity]}{'' if counts[severity] == 1 else 's'}"
        for severity in SEVERITIES
        if counts[severity]
    )


def warning_place(finding: Finding, *, unless_in: str = "") -> str:
    """Say where and since when: `layer 17 attention since step 8,950`; empty where nobody knows.

    What the text `unless_in` says already is left out.
    """
    layers = [layer for layer in finding.layers if layer > 0]
    words: list[str] = []
    if layers and "layer" not in unless_in:
        noun = "layer" if len(layers) == 1 else "layers"
        shown = ", ".join(map(str, layers[:MOST_NAMED]))
        more = f" and {len(layers) - MOST_NAMED} more" if len(layers) > MOST_NAMED else ""
        words.append(f"{noun} {shown}{more}")
    if finding.sublayer and finding.sublayer not in unless_in:
        words.append(finding.sublayer)
    since = finding.details.get("since")
    said = unless_in.replace(",", "")
    if isinstance(since, int) and f"step {since}" not in said:
        words.append(f"since step {since:,}")
    return " ".join(words)


def below_warning(finding: Finding) -> list[Sentence]:
    """Say why, what to do, and which batches came just before, in a line each."""
    lines: list[Sentence] = []
    if finding.cause and "step" in finding.details:
        lines.append(Sentence(f"  likely: {finding.cause}", hang=10))
    if words := finding.remedy.get("words"):
        lines.append(Sentence(f"  do: {words}", hang=6))
    if batches := finding.details.get("batches"):
        lines.append(Sentence(f"  batches: {batch_words(batches)}", hang=11))
    return lines


def batch_words(batches: Mapping[str, str]) -> str:
    """Name the first batches of a warning, which may have caused it, and the last.

    All of them would push the advice off the screen; they stand in `finding.details["batches"]`.
    """
    named = [f"step {step}: {_one_line(name)}" for step, name in batches.items()]
    if len(named) > FIRST_BATCHES + 2:
        named[FIRST_BATCHES:-1] = ["..."]
    return "; ".join(named)


def _one_line(name: str) -> str:
    """A loop may have named a batch by all of its tokens."""
    words = " ".join(name.split())
    return words if len(words) <= LONGEST_BATCH else f"{words[:LONGEST_BATCH].rstrip()}..."


def _loss_words(trend: Trend | None) -> str:
    if trend is None:
        return "without a loss that the watch could see"
    if trend.lost is not None:
        return f"loss {trend.words}"
    return f"loss from {format_number(trend.first, digits=3)} to {trend.words}"


def _warning_words(findings: Sequence[Finding]) -> str:
    if not findings:
        return "no warning"
    named = [
        f"{finding.code or finding.verdict} {finding.name} {warning_place(finding)}".strip()
        for finding in findings[:MOST_NAMED]
    ]
    return f"{count_warnings(findings)}: {'; '.join(' '.join(one.split()) for one in named)}"


def _attempt_sentences(record: Record) -> list[str]:
    attempts = attempts_of(record)
    last = attempts[-1] if attempts else None
    ending = [] if last is None or not last.error else [_error_sentence(last.error)]
    if len(attempts) < 2:
        return ending
    if len(attempts) == 2:
        first, second = attempts
        return [
            f"The run has two parts: the first {_end_words(first)}, the second began at step "
            f"{second.first:,}.",
            *ending,
        ]
    steps = join_words(f"{attempt.first:,}" for attempt in attempts[-MOST_NAMED:])
    return [f"The run has {len(attempts)} parts; the last ones began at steps {steps}.", *ending]


def _error_sentence(error: str) -> str:
    name, _, words = error.partition(": ")
    if name == "TrainingStopped":
        return f"The watch stopped it: {words.rstrip('.')}."
    return f"It ended with an error: {error.rstrip('.')}."


def _end_words(attempt: Attempt) -> str:
    if (attempt.error or "").startswith("TrainingStopped"):
        return "was stopped by the watch"
    if attempt.error:
        return f"ended with an error ({attempt.error})"
    return "was closed" if attempt.ended == "closed" else "was cut off"
