"""What a check is, and how several are run: one that fails does not stop the others."""

from __future__ import annotations

import inspect
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from leadline.errors import LeadlineError, Progress, words_of

__all__ = [
    "Failed",
    "PartCheck",
    "Question",
    "answer",
    "closeness",
    "require",
    "some",
    "within",
]


Question = tuple[str, Callable[[], str]]
"""The name of a check, and the function that returns what was found or raises."""


@dataclass(frozen=True)
class PartCheck:
    """One check of one part: whether it passed, and what was found or what to change."""

    name: str
    passed: bool
    detail: str = ""
    seconds: float = 0.0


class Failed(Exception):
    """A check that did not pass; the message says what was found."""


def require(holds: bool, sentence: str) -> None:
    """Fail with the sentence unless the fact holds."""
    if not holds:
        raise Failed(sentence)


def answer(
    questions: Sequence[Question],
    *,
    entry: object = None,
    prerequisite: str = "builds",
    progress: Progress | None = None,
) -> list[PartCheck]:
    """Ask every question in turn. If `prerequisite` fails, the later ones make no sense."""
    checks: list[PartCheck] = []
    for number, (name, ask) in enumerate(questions):
        if progress is not None:
            progress(name, number, len(questions))
        checks.append(_ask(name, ask, entry))
        if name == prerequisite and not checks[-1].passed:
            break
    return checks


def _ask(name: str, ask: Callable[[], str], entry: object) -> PartCheck:
    started = time.perf_counter()
    passed, detail = False, ""
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")  # a warning of a part is not a fault
        torch.manual_seed(0)
        try:
            detail = ask()
            passed = True
        except (Failed, LeadlineError) as error:
            detail = str(error)
        except Exception as error:  # anything may go wrong in a part
            message = words_of(error, first_line=True).rstrip(".")
            detail = f"{type(error).__name__}: {message}{_where(error, entry)}"
    return PartCheck(name, passed, detail, time.perf_counter() - started)


def _where(error: Exception, entry: object) -> str:
    """Return the last line of the part's file that the error passed through."""
    source: Any = inspect.unwrap(entry) if callable(entry) else entry
    try:
        file = inspect.getsourcefile(source)
    except TypeError:
        return ""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    return f" (line {lines[-1]})" if lines else ""


def closeness(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference, over the largest expected value."""
    actual, expected = actual.detach().double(), expected.detach().double()
    if actual.shape != expected.shape:
        raise Failed(f"the shape is {list(actual.shape)} and was {list(expected.shape)} before")
    size = float(expected.abs().max()) if expected.numel() else 0.0
    miss = float((actual - expected).abs().max()) if expected.numel() else 0.0
    return miss if size == 0.0 else miss / size


def some(names: list[str], at_most: int = 3) -> str:
    """A few names, and how many more there are."""
    listing = ", ".join(names[:at_most])
    return listing if len(names) <= at_most else f"{listing} and {len(names) - at_most} more"


def within(miss: float) -> str:
    """How near two results are, in words."""
    return f"the same within {miss:.1g}" if miss else "exactly the same"
