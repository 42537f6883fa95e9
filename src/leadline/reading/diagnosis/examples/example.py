"""The example of a rule: a sick model, what the rule says of it, and whether the remedy helps.

`kept.json` beside this file holds the examples as `make rules` ran them. They are data, so that the
page of a rule is shown without torch, and pages are checked without running seventy models.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

__all__ = [
    "KEPT",
    "DepthCurve",
    "RemedyTrial",
    "RuleExample",
    "Strip",
    "kept_examples",
    "write_examples",
]

KEPT = Path(__file__).parent / "kept.json"


@dataclass(frozen=True)
class DepthCurve:
    """One quantity over depth, of the sick model and of the healthy one; None is not finite."""

    title: str
    what: str
    """Which tensor or which write of a block."""
    layers: tuple[int, ...]
    sick: tuple[float | None, ...]
    healthy: tuple[float | None, ...] = ()
    logarithmic: bool = False


@dataclass(frozen=True)
class Strip:
    """Cells in a row, 1 for those that count: tokens that moved, layers that are accused."""

    name: str
    cells: str
    marked: tuple[int, ...] = ()
    """Cells with a frame, counted from 0: the token that was changed."""


TrialOutcome = Literal["gone", "still there", "by hand", "failed"]


@dataclass(frozen=True)
class RemedyTrial:
    """What a second visit said after the remedy was applied to a copy of the example."""

    outcome: TrialOutcome
    edit: Mapping[str, Any] = field(default_factory=dict[str, Any])
    new: tuple[str, ...] = ()
    """Verdicts of findings that were not there before."""
    left: tuple[str, ...] = ()
    """Codes of warnings or worse that are still there."""
    why: str = ""
    """Why it could not be applied."""


@dataclass(frozen=True)
class RuleExample:
    """One fault in one model, and what came of it."""

    code: str
    fault: str
    fault_words: str
    model: str
    host: str
    """The host of the fault zoo; empty for wild faults and for models built for the page."""
    seed: int
    means: str
    """What was given beside model and inputs, as an option of the command; empty for nothing."""
    finding: Mapping[str, Any]
    beside: tuple[str, ...]
    """Codes of the other warnings or worse, in their order."""
    first: bool
    """Whether the finding is the first of the diagnosis."""
    explained_by: str
    """The code of the finding that hides this one where both are there; empty for none."""
    trial: RemedyTrial
    thread: str = ""
    """Where the fault was met, for faults that somebody really had."""
    curve: DepthCurve | None = None
    strips: tuple[Strip, ...] = ()
    strips_title: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RuleExample:
        """Return the example that a JSON value describes."""
        plain = _fields(data)
        curve, strips, trial = data["curve"], data["strips"], data["trial"]
        plain["finding"] = data["finding"]
        plain["curve"] = None if curve is None else DepthCurve(**_fields(curve))
        plain["strips"] = tuple(Strip(**_fields(one)) for one in strips)
        plain["trial"] = RemedyTrial(**{**_fields(trial), "edit": trial["edit"]})
        return cls(**plain)


def _fields(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _tuples(value) for key, value in data.items()}


def _tuples(value: Any) -> Any:
    """A list of JSON as the tuple that a frozen value holds."""
    return tuple(cast("list[Any]", value)) if isinstance(value, list) else value


@cache
def kept_examples() -> Mapping[str, RuleExample]:
    """Every example that is kept, by the code of its rule; rules of plug-ins have none."""
    data = json.loads(KEPT.read_text(encoding="utf-8"))
    return {one["code"]: RuleExample.from_json(one) for one in data}


def write_examples(examples: Sequence[RuleExample], path: Path = KEPT) -> None:
    """Keep the examples: one line for each, so that changes are easy to read."""
    ordered = sorted(examples, key=lambda one: one.code)
    rows = [
        json.dumps(one.to_json(), ensure_ascii=False, allow_nan=False, sort_keys=True)
        for one in ordered
    ]
    path.write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")
