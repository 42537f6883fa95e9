"""The errors where there is nothing to compare bounds with: one sentence each, with what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from leadline.errors import InputError, shown
from leadline.record import Record
from leadline.record.views import written_by
from leadline.theory import StackFacts

__all__ = [
    "check_record_or_facts",
    "no_attention_facts",
    "not_along_layers",
    "not_known",
    "nothing_measured",
]

_THROUGH = '`--probes "jacobian(through=true)"`'
"""What measures the norm of the product of the blocks, which costs passes of all of them."""


def check_record_or_facts(value: object) -> None:
    """Raise an error unless `value` is a record or the facts of a stack."""
    if isinstance(value, (Record, StackFacts)):
        return
    takes = "bounds takes a record or the facts of a stack, and was given"
    if value is None:
        raise InputError(
            f"{takes} None: `leadline.collapse(..., facts=True)` returns a record with facts."
        )
    if isinstance(value, (str, Path)):
        raise InputError(f"{takes} the path {str(value)!r}: open it with `leadline.Record.open`.")
    raise InputError(
        f"{takes} {shown(value)}: "
        "give what `leadline.measure` or `leadline.collapse(..., facts=True)` returns."
    )


def nothing_measured(
    record: Record, family: Literal["attention", "collapse", "depth", "bounds"]
) -> str:
    """Say that a record lacks what bounds of a family are about; `bounds`: of all families."""
    which = f"The record {record.path}" if record.path is not None else "This record"
    if record.instrument == "collapse":
        wants = {"attention": "attention matrices", "depth": "whole streams"}.get(family)
        return (
            f"{which} was written by leadline.collapse, and these bounds are about {wants}: "
            "measure the model with `leadline measure MODEL --probes attention,stream`."
            if wants
            else f"{which} was written by leadline.collapse without the facts that the theorems "
            "need: use `leadline.collapse(..., facts=True)` or `leadline collapse MODEL -o FILE`."
        )
    if record.instrument == "attacks":
        return (
            f"{which} holds bounds under attack and no model; give the record of a model, as "
            "`leadline measure MODEL -o FILE` writes it."
        )
    if family == "collapse":
        return (
            f"{which} holds no composite residuals, and these bounds are about them: "
            "measure the model again with `leadline measure MODEL --probes tokens,residual,collapse`."
        )
    if family == "depth":
        return (
            f"{which} holds no variance of the stream and no Jacobians of a stack that it tells "
            "of, and these laws are about them: measure the model again with `leadline measure "
            f"MODEL --probes stream`, or with {_THROUGH} for residual-product."
        )
    if family == "bounds":
        writer = written_by(record.provenance)
        origin = f" was written by `leadline {writer}` and" if writer else ""
        return (
            f"{which}{origin} holds neither attention readings nor composite residuals, nor what a law of "
            "depth says of a model like this: measure the model again with `leadline measure "
            "MODEL --probes attention` for the bounds on attention, with "
            "`--probes tokens,residual,collapse` for those on rank collapse, or with "
            f"{_THROUGH} for residual-product."
        )
    return (
        f"{which} holds no attention readings, and these bounds are about attention: "
        "measure the model again with `leadline measure MODEL --probes attention`."
    )


def no_attention_facts(name: str, *, about: str = "attention matrices") -> str:
    """Say that the facts of a stack cannot answer for attention matrices."""
    return (
        f"The bound {name!r} is about {about}, and the facts of a stack hold none: "
        "give a record, or choose bounds on rank collapse (`leadline list bounds`)."
    )


def not_along_layers(name: str) -> str:
    """Say that one record cannot answer for a law over models of several depths."""
    return (
        f"The law {name!r} is about models of several depths, and a record is of one: "
        "`leadline reproduce depth-laws` measures several, `leadline explain "
        f"{name}` states the law."
    )


def not_known(assumption: str) -> str:
    """Say that nothing tells whether an assumption holds, and how to measure what would."""
    what = assumption.removesuffix(" was measured")
    if what == assumption:
        return f"it is not known whether {assumption}"
    return f"{what} was not measured; `leadline measure MODEL` with {_THROUGH} does"
