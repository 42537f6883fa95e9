"""The way from the output of a block back to its stream, and what is wrong on it.

A value is taken apart into the stream, updates and tensors from elsewhere; norms are gone through.
An addition without the stream, or with another tensor in its place, is a fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from leadline.anatomy.find.block_report import BlockFault
from leadline.anatomy.find.block_terms import STREAM, Term, Terms, hands_on, terms_text
from leadline.anatomy.find.fit import FittedWrite
from leadline.anatomy.find.replay import (
    Replay,
    ReplayedCall,
)

__all__ = [
    "back_to_stream",
    "branch_name",
    "lost_on_the_way",
    "norm_readers",
    "stream_point",
    "stream_products",
]

Tensor = torch.Tensor


@dataclass(frozen=True)
class StreamPoint:
    """The stream as a branch reads it, through a norm or bare; `order` is that of the reader."""

    value: Tensor
    order: int
    norm: ReplayedCall | None


def stream_point(terms: Terms, call: ReplayedCall) -> StreamPoint | None:
    """Go back from the call that returned an update to the tensor of the stream that it is made of."""
    outer = call
    for _ in range(6):
        outer = _outermost(terms, outer)
        value, order = outer.entered, outer.order
        if value is None:
            return None
        maker = next(
            (
                c
                for c in reversed(terms.replay.calls)
                if c.order < order
                and c is not outer
                and same_tensor(c.returned, value)
                and not hands_on(c)
            ),
            None,
        )
        if maker is not None and maker.norm and terms.fits(maker.entered):
            assert maker.entered is not None
            return StreamPoint(maker.entered, maker.order, maker)
        if maker is None:
            fits = terms.fits(value)
            return StreamPoint(value, _first_inside(terms, outer), None) if fits else None
        outer = maker
    return None


def _outermost(terms: Terms, call: ReplayedCall) -> ReplayedCall:
    """The call of the block's own child around this call."""
    child = terms.replay.path + "." + terms.name(call).split(".")[0]
    return next((c for c in terms.replay.calls if c.path == child and c.order >= call.order), call)


def _first_inside(terms: Terms, call: ReplayedCall) -> int:
    """The order of the first call inside this one: what came before it was there when it began."""
    inside = [c.order for c in terms.replay.calls if c.path.startswith(f"{call.path}.")]
    return min([call.order, *(order for order in inside if order < call.order)])


def branch_name(terms: Terms, call: ReplayedCall) -> str:
    """The name of what computed an update: not that of a dropout behind it."""
    parts = None if call.returned is None else terms.explain(call.returned)
    return parts[0].name if parts is not None and len(parts) == 1 else terms.name(call)


def lost_on_the_way(
    terms: Terms, writes: Sequence[FittedWrite], write: FittedWrite, point: StreamPoint
) -> list[BlockFault]:
    """Updates that a later branch reads together with the stream, and the stream itself never gets."""
    parts = terms.explain(point.value, before=point.order)
    if parts is None or not any(part.name == STREAM for part in parts):
        return []
    # A branch that adds the stream itself, as Bloom's does, brings along what came before it.
    update = write.call.returned
    inside = None if update is None else terms.explain(update, before=write.call.order)
    if any(part.name == STREAM for part in inside or ()):
        return []
    faults: list[BlockFault] = []
    for part in parts:
        if part.call is None or part.norm:
            continue
        if any(same_tensor(part.call.returned, one.call.returned) for one in writes):
            continue
        faults.append(
            BlockFault(
                "skip-from-before",
                branch=branch_name(terms, write.call),
                source=part.name,
                formula=f"branch reads {terms_text(parts)}",
            )
        )
    return faults


def back_to_stream(terms: Terms) -> tuple[str, list[BlockFault]] | None:
    """Go from the output back to the block's input; each addition without the stream is a fault."""
    replay = terms.replay
    value, order = replay.after, len(replay.calls)
    faults: list[BlockFault] = []
    formulas: list[str] = []
    for _ in range(8):
        settle = _norm_that_made(terms, value, order)
        if settle is not None:
            assert settle.entered is not None
            value, order = settle.entered, settle.order
        parts = terms.explain(value, before=order)
        if parts is None:
            return None
        text = terms_text(parts)
        formulas.insert(0, text if settle is None else f"{terms.name(settle)}({text})")
        if any(part.name == STREAM for part in parts):
            break
        if any(_is_foreign(part) for part in parts):
            faults += [_fault_of_source(parts, part) for part in parts if _is_foreign(part)]
            break
        state = next((part.call for part in parts if _is_state(terms, part)), None)
        if state is not None:
            assert state.entered is not None
            value, order = state.entered, state.order
            formulas[0] = formulas[0].replace(terms.name(state), f"h = {terms.name(state)}(...)")
            continue
        first = min(parts, key=lambda part: -1 if part.call is None else part.call.order)
        assert first.call is not None
        point = stream_point(terms, first.call)
        norm = None if point is None else point.norm
        faults.append(
            BlockFault(
                "skip-missing",
                branch=first.name,
                formula=text,
                reads="" if norm is None else terms.name(norm),
                certain=_ends_linearly(terms, first.call),
            )
        )
        if point is None or torch.equal(terms.flat(point.value), terms.flat(replay.before)):
            break
        value, order = point.value, point.order
    return (" then ".join(formulas), faults) if faults else None


def _ends_linearly(terms: Terms, call: ReplayedCall) -> bool:
    """Whether an update is what a linear map returned, in which no stream can have been added."""
    return any(
        c.leaf and _is_linear_map(c.module) and same_tensor(c.returned, call.returned)
        for c in terms.replay.calls
    )


def _is_linear_map(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    known = type(module).__module__.startswith("torch.nn.") or type(module).__name__ == "Conv1D"
    return known and isinstance(weight, Tensor) and weight.ndim >= 2


def _is_foreign(part: Term) -> bool:
    return part.call is None and part.name != STREAM


def _fault_of_source(parts: tuple[Term, ...], part: Term) -> BlockFault:
    """A sum that holds a tensor from elsewhere in place of the stream."""
    text = terms_text(parts)
    if part.name.startswith(f"{STREAM} * "):
        return BlockFault(
            "skip-multiplied", branch=part.name.removeprefix(f"{STREAM} * "), formula=text
        )
    branch = next((one.name for one in parts if one.call is not None), "")
    return BlockFault("skip-from-elsewhere", branch=branch, source=part.name, formula=text)


def _is_state(terms: Terms, part: Term) -> bool:
    """Whether a term is the stream behind a norm, not a branch whose output is normed."""
    call = part.call
    if call is None or not call.norm or not terms.fits(call.entered):
        return False
    return not any(
        not c.norm and c.order < call.order and same_tensor(c.returned, call.entered)
        for c in terms.replay.calls
    )


def _norm_that_made(terms: Terms, value: Tensor, order: int) -> ReplayedCall | None:
    """The norm whose output a value is, unless it norms the output of a branch."""
    for call in reversed(terms.replay.calls):
        if call.order < order and call.norm and same_tensor(call.returned, value):
            return call if _is_state(terms, Term(1.0, terms.name(call), call)) else None
    return None


def stream_products(replay: Replay) -> dict[str, Tensor]:
    """The stream times what each child returned."""
    return {
        f"{STREAM} * {call.path.removeprefix(replay.path + '.')}": replay.before * call.returned
        for call in replay.calls
        if call.returned is not None
        and call.returned.shape == replay.before.shape
        and "." not in call.path.removeprefix(f"{replay.path}.")
        and not call.norm
    }


def norm_readers(terms: Terms) -> dict[str, str]:
    """What each norm that runs on tensors of the stream's size takes in, as a sum."""
    readers: dict[str, str] = {}
    for call in terms.replay.calls:
        if call.norm and call.entered is not None and terms.fits(call.entered):
            parts = terms.explain(call.entered, before=call.order)
            readers[terms.name(call)] = "" if parts is None else terms_text(parts)
    return readers


def same_tensor(first: Tensor | None, second: Tensor | None) -> bool:
    return (
        first is not None
        and second is not None
        and first.shape == second.shape
        and torch.equal(first, second)
    )
