"""How a training run ended, as its record says.

A record of one run has the entry `outcome`, that of a sweep one entry per cell. A run that
diverged has no result: its last validation loss was read before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from leadline.record.provenance import number_at, text_at, value_at

if TYPE_CHECKING:
    from leadline.record.record import Record

__all__ = ["RunEnding", "ending_of", "ending_text", "endings_of", "is_cell"]

_CELL = "cell:"
_WORDS = {"plateau": "ended on a plateau", "seconds": "ended by the clock"}


@dataclass(frozen=True, slots=True)
class RunEnding:
    """Why a run ended, and after how many steps."""

    status: str
    reason: str
    steps: int

    @property
    def diverged(self) -> bool:
        """Whether it has no result."""
        return self.status == "diverged"

    @property
    def words(self) -> str:
        """The status in words."""
        return _WORDS.get(self.status, self.status)

    @property
    def sentence(self) -> str:
        """Say it in one sentence."""
        if self.status == "finished":
            return f"The run finished: {_steps(self.steps)}."
        if self.diverged:
            return f"The run diverged: {self.reason or f'at step {self.steps}'}."
        reason = f": {self.reason}" if self.reason else ""
        return f"The run {self.words} after {_steps(self.steps)}{reason}."


def ending_of(record: Record) -> RunEnding | None:
    """Return how the run of a record ended; None where it says nothing, or of a sweep."""
    return _ending(record.provenance.get("outcome"))


def endings_of(record: Record) -> dict[str, RunEnding]:
    """Return how the runs of a record ended, by name, of a sweep and of a single run."""
    provenance = record.provenance
    endings = {
        key.removeprefix(_CELL): ending
        for key, entry in provenance.items()
        if is_cell(key) and (ending := _ending(entry)) is not None
    }
    runs = record.runs
    single_run = _ending(provenance.get("outcome"))
    return endings | ({runs[0]: single_run} if single_run is not None and len(runs) == 1 else {})


def is_cell(key: str) -> bool:
    """Say whether an entry of the provenance is about one cell of a sweep."""
    return key.startswith(_CELL)


def ending_text(provenance: Mapping[str, Any]) -> str:
    """Say how the run of a record ended; nothing where no single run was trained."""
    ending = _ending(provenance.get("outcome"))
    if ending is not None:
        return ending.sentence
    has_started = value_at(provenance, "training", "steps") is not None
    return "The run has not ended." if has_started else ""


def _ending(entry: object) -> RunEnding | None:
    if not isinstance(entry, Mapping):
        return None
    fields = cast("Mapping[str, Any]", entry)
    status = text_at(fields, "status")
    if not status:
        return None
    return RunEnding(status, text_at(fields, "reason"), int(number_at(fields, "steps") or 0))


def _steps(count: int) -> str:
    return f"{count:,} step" if count == 1 else f"{count:,} steps"
