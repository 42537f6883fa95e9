"""How often a diagnosis is right: detection, cause, place, precision, false alarms.

    detected         a warning or worse was found
    first            the first finding names an accepted cause
    among            some finding does
    place            a finding with an accepted cause names the right layer (and no other than those
                     that the answer names), of the cases whose answer has one
    precision        right first findings over all first findings, those of healthy models included
    false alarm      a healthy model with a warning or worse

A finding counts where it is a warning or worse; notes count only where the answer itself is a note.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline.reading.map.binomial import binomial_interval

if TYPE_CHECKING:
    from leadline.reading.diagnosis.diagnosis import Diagnosis
    from leadline.record.rows.finding import Finding

__all__ = ["FaultOutcome", "Share", "judge", "read_outcomes", "score", "write_outcome"]

NOTES = frozenset({"parameters-frozen", "attention-sinks", "massive-activations", "logit-drift"})
"""Causes that are notes by right: a fault of this kind is found by its note."""


@dataclass(frozen=True)
class FaultOutcome:
    """What a diagnosis said of one case. `causes` is empty for a healthy control."""

    case: str
    fault: str
    host: str
    causes: tuple[str, ...]
    layers: tuple[int, ...]
    named: tuple[str, ...]
    """Names of the findings that count, in their order."""
    places: tuple[tuple[int, ...], ...]
    """The layers that each of them names."""
    verdict: str = ""
    seconds: float = 0.0
    error: str = ""

    @property
    def is_sick(self) -> bool:
        """Whether the case has a fault."""
        return bool(self.causes)

    @property
    def detected(self) -> bool:
        """Whether anything was found."""
        return bool(self.named)

    @property
    def first(self) -> bool:
        """Whether the first finding names the cause."""
        return bool(self.named) and self.named[0] in self.causes

    @property
    def among(self) -> bool:
        """Whether some finding names the cause."""
        return any(name in self.causes for name in self.named)

    @property
    def place(self) -> bool | None:
        """Whether the place is right; None where the answer has none or the cause was missed."""
        if not self.layers or not self.among:
            return None
        return any(
            name in self.causes and layers and set(layers) <= set(self.layers)
            for name, layers in zip(self.named, self.places, strict=True)
        )


@dataclass(frozen=True)
class Share:
    """So many of so many, with the 95 % interval of Clopper and Pearson."""

    name: str
    hits: int
    trials: int

    @property
    def value(self) -> float:
        """Hits over trials."""
        return self.hits / self.trials if self.trials else float("nan")

    @property
    def interval(self) -> tuple[float, float]:
        """Where the true share lies, with 95 % confidence."""
        return binomial_interval(self.hits, self.trials)

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{self.name}: {self.hits} of {self.trials}, {self.value:.3f} ({low:.3f} to {high:.3f})"
        )


def judge(
    case: str,
    fault: str,
    host: str,
    *,
    causes: Sequence[str],
    layers: Sequence[int],
    diagnose: Callable[[], Diagnosis],
) -> FaultOutcome:
    """Diagnose one case and keep what counts."""
    started = time.perf_counter()
    try:
        diagnosis = diagnose()
    except Exception as error:  # a diagnosis that fails has found nothing, and that is counted
        return FaultOutcome(
            case, fault, host, tuple(causes), tuple(layers), (), (),
            error=f"{type(error).__name__}: {error}", seconds=time.perf_counter() - started,
        )  # fmt: skip
    counted = [one for one in diagnosis.findings if _counts(one, causes)]
    return FaultOutcome(
        case,
        fault,
        host,
        tuple(causes),
        tuple(layers),
        tuple(one.name for one in counted),
        tuple(one.layers for one in counted),
        verdict=counted[0].verdict if counted else "",
        seconds=time.perf_counter() - started,
    )


def _counts(finding: Finding, causes: Sequence[str]) -> bool:
    by_right = finding.name in NOTES and finding.name in causes
    return finding.severity != "note" or by_right


def score(outcomes: Iterable[FaultOutcome]) -> list[Share]:
    """The shares of a set of cases, sick and healthy together."""
    rows = list(outcomes)
    sick = [one for one in rows if one.is_sick]
    healthy = [one for one in rows if not one.is_sick]
    placed = [one for one in sick if one.layers]
    alarmed = [one for one in rows if one.detected]
    return [
        Share("detected", sum(one.detected for one in sick), len(sick)),
        Share("right cause first", sum(one.first for one in sick), len(sick)),
        Share("right cause among the findings", sum(one.among for one in sick), len(sick)),
        Share("place right", sum(one.place is True for one in placed), len(placed)),
        Share("precision", sum(one.first for one in alarmed), len(alarmed)),
        Share("healthy models with an alarm", sum(one.detected for one in healthy), len(healthy)),
    ]


def write_outcome(path: Path, outcome: FaultOutcome) -> None:
    """Append one outcome to a file of lines of JSON."""
    with path.open("a") as file:
        file.write(json.dumps(asdict(outcome)) + "\n")


def read_outcomes(path: Path) -> list[FaultOutcome]:
    """Read what `write_outcome` wrote."""
    if not path.exists():
        return []
    return [_outcome(json.loads(line)) for line in path.read_text().splitlines() if line]


def _outcome(row: Mapping[str, Any]) -> FaultOutcome:
    fields = dict(row)
    for key in ("causes", "layers", "named"):
        fields[key] = tuple(row[key])
    fields["places"] = tuple(tuple(one) for one in row["places"])
    return FaultOutcome(**fields)
