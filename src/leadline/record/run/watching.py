"""What a watched training run says about itself, update by update, and where it went on.

`step` counts the updates: what stands at step s was read while update s was made, of the forward
and backward pass before it or of the update itself. A run that was cut off goes on in the same
record. Where it goes on at an earlier step than the record has reached, its rows get a run name of
their own, so that nothing that was read before is lost; `attempts_of` says which rows are which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from leadline.record.provenance import value_at
from leadline.record.rows.finding import SEVERITIES
from leadline.record.rows.quantity import Quantity
from leadline.record.run.training import GRADIENT_NORM, LEARNING_RATE

if TYPE_CHECKING:
    from leadline.record.record import Record
    from leadline.record.rows.finding import Finding

__all__ = [
    "CLIPPING",
    "LOG_Z",
    "LOSS",
    "OF_THE_RUN",
    "OF_THE_WEIGHTS",
    "SURPRISE",
    "WEIGHT_UPDATE",
    "Attempt",
    "attempts_of",
    "is_watched",
    "replaced",
    "without_replaced",
]

LOSS = Quantity(
    name="train.loss",
    title="Training loss",
    symbol="L",
    formula="value on which backward was called, summed over the micro-batches of this update",
    lives_on="run",
    high="A jump is a spike; a slow rise is a run that comes apart.",
    low="The model predicts the training data.",
    headline="value",
    meaning="How well the model does what it is trained for.",
    topic="training",
    better="low",
)
CLIPPING = Quantity(
    name="train.clipping",
    title="Clipping factor",
    symbol="c",
    formula="gradient that the optimizer takes over the gradient that backward left, where all of it "
    "is multiplied by one factor; where this stands, gradients are those that backward left, else "
    "those that the optimizer takes",
    lives_on="run",
    headline="value",
    high="1: the gradient was not clipped. Above 1 the loop makes it longer.",
    low="The gradient was many times longer than the limit of clipping, or the loop divides it, as by "
    "the number of micro-batches.",
    meaning="How much of the gradient the loop leaves, by clipping as a rule.",
    topic="training",
)
LOG_Z = Quantity(
    name="output.log_z",
    title="Log of the softmax's sum",
    symbol="log Z",
    formula="mean of log sum exp over the logits of some tokens of the batch",
    unit="nats",
    lives_on="run",
    headline="value",
    high="Logits drift upwards together: softmax does not notice, half precision does.",
    low="Logits drift downwards together.",
    source="Chowdhery et al. 2022, arXiv 2204.02311",
    meaning="Whether the output logits drift as a whole.",
    topic="training",
)
WEIGHT_UPDATE = Quantity(
    name="weights.update_ratio",
    title="Update over weights",
    symbol="RMS(ΔW) / RMS(W)",
    formula="root mean square of the change that this update makes over that of the weights "
    "before it, of all weights that serve one write; of many weights evenly spaced ones",
    lives_on="sublayer",
    scale="log",
    headline="value",
    high="One update replaces much of the weights: the learning rate is too large for them.",
    low="The weights hardly move.",
    meaning="How far one update moves the weights.",
    topic="weights",
    leads=True,
    better="even",
)
SURPRISE = Quantity(
    name="optimizer.surprise",
    title="Gradient over the optimizer's second moment",
    symbol="RMS(g / √v)",
    formula="root mean square of the gradient over the square root of the second moment that the "
    "optimizer held before this update, bias-corrected; of many weights evenly spaced ones",
    lives_on="sublayer",
    scale="log",
    headline="value",
    high="Above 1 gradients are larger than the optimizer remembers: its steps are too long.",
    low="Below 1 gradients are smaller than the optimizer remembers.",
    source="Wortsman et al. 2023, arXiv 2304.13013",
    meaning="Whether gradients are larger than the optimizer expects.",
    topic="weights",
)

OF_THE_RUN = (LOSS, LEARNING_RATE, GRADIENT_NORM, CLIPPING, LOG_Z)
OF_THE_WEIGHTS = (WEIGHT_UPDATE, SURPRISE)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One process that wrote to the record: the name of its rows and its first update."""

    run: str
    first: int
    ended: str = ""
    """`closed` or `error`; nothing where it was cut off, or still runs."""
    error: str = ""
    """What ended it, where it ended by an exception."""

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Attempt:
        """Read it from an entry of the provenance."""
        ended, error = str(entry.get("ended", "")), str(entry.get("error", ""))
        return cls(str(entry["run"]), int(entry["first"]), ended, error)


def without_replaced(findings: Iterable[Finding], watch: Mapping[str, Any] | None) -> list[Finding]:
    """Leave out warnings about updates that a later attempt has made again, from an earlier step.

    `watch` is what the provenance says under that name. Of a watched run the worst warnings come
    first, and of those the earliest: it is nearest to the cause.
    """
    kept = [one for one in findings if not _is_replaced(one, watch)]
    return kept if watch is None else sorted(kept, key=_worst_and_earliest)


def replaced(findings: Iterable[Finding], watch: Mapping[str, Any] | None) -> list[Finding]:
    """Return the warnings about updates that a later attempt has made again."""
    return sorted((one for one in findings if _is_replaced(one, watch)), key=_worst_and_earliest)


def _is_replaced(finding: Finding, watch: Mapping[str, Any] | None) -> bool:
    attempts = value_at(watch or {}, "attempts")
    entries = cast("list[Mapping[str, Any]]", attempts) if isinstance(attempts, list) else []
    attempt, step = finding.details.get("attempt"), finding.details.get("step")
    later = entries[attempt + 1 :] if isinstance(attempt, int) else []
    return isinstance(step, int) and any(int(one["first"]) <= step for one in later)


def _worst_and_earliest(finding: Finding) -> tuple[int, int]:
    since = finding.details.get("since")
    place = SEVERITIES.index(finding.severity) if finding.severity in SEVERITIES else 0
    return place, since if isinstance(since, int) else -1


def is_watched(record: Record) -> bool:
    """Say whether `leadline.watch` wrote a record."""
    return "watch" in record.provenance


def attempts_of(record: Record) -> list[Attempt]:
    """Return the attempts in their order; those of a record that nobody watched are its runs."""
    noted: Any = record.provenance.get("watch")
    attempts: Any = cast("Mapping[str, Any]", noted).get("attempts") if noted else None
    if isinstance(attempts, list):
        entries = cast("list[Mapping[str, Any]]", attempts)
        return [Attempt.of(one) for one in entries]
    return [Attempt(run, 0) for run in record.runs[:1]]
