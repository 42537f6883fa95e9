"""What is said where bounds cannot be set beside what was given: one sentence, with what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from leadline.errors import InputError
from leadline.record import Record
from leadline.theory import StackFacts

__all__ = ["check_given", "no_attention_facts", "nothing_measured"]


def check_given(given: object) -> None:
    """Refuse what is neither a record nor the facts of a stack, with what to give instead."""
    if isinstance(given, (Record, StackFacts)):
        return
    takes = "bounds takes a record or the facts of a stack, and was given"
    if given is None:
        raise InputError(
            f"{takes} None: "
            "`leadline.collapse(..., facts=True)` finds facts, and those of several examples are "
            "in found.examples[i].facts."
        )
    if isinstance(given, (str, Path)):
        raise InputError(f"{takes} the path {str(given)!r}: open it with `leadline.Record.open`.")
    raise InputError(
        f"{takes} a {type(given).__name__}: "
        "give what `leadline.measure` returns, or `found.facts` of "
        "`leadline.collapse(..., facts=True)`."
    )


def nothing_measured(record: Record, family: Literal["attention", "collapse", "bounds"]) -> str:
    """Say that a record lacks what bounds of a family are about; `bounds`: of both families."""
    which = f"The record {record.path}" if record.path is not None else "This record"
    if family == "collapse":
        return (
            f"{which} holds no composite residuals, and these bounds are about them: "
            "measure the model again with `leadline measure MODEL --probes tokens,residual,collapse`."
        )
    if family == "bounds":
        return (
            f"{which} holds neither attention readings nor composite residuals, and bounds are "
            "about these: measure the model again with `leadline measure MODEL --probes attention` "
            "for the bounds on attention, or with `--probes tokens,residual,collapse` for those on "
            "rank collapse."
        )
    return (
        f"{which} holds no attention readings, and these bounds are about attention: "
        "measure the model again with `leadline measure MODEL --probes attention`."
    )


def no_attention_facts(name: str) -> str:
    """Say that the facts of a stack cannot answer for attention matrices."""
    return (
        f"The bound {name!r} is about attention matrices, and the facts of a stack hold none: "
        "give a record, or choose bounds on rank collapse (`leadline list bounds`)."
    )
