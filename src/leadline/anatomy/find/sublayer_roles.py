"""What a sublayer is: attention moves other tokens, an MLP does not.

Take a random direction of the update at one token and its gradient with respect to the stream
just before the write. If other tokens appear, the branch mixes tokens; if another tensor with
tokens of its own appears (the encoder's output), it is cross-attention. The gradient also shows
which axis holds the tokens, whether the mixing is causal, and whether a branch reads the stream
as it entered the block (parallel).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from leadline.anatomy.find.fit import FittedWrite
from leadline.anatomy.find.replay import Replay, ReplayedCall

__all__ = [
    "Mixing",
    "mark_parallel",
    "mixing",
    "placement_name",
    "placement_of",
    "pulled_back",
    "role_of",
]

Tensor = torch.Tensor
_FAINT = 1e-7
"""Gradients below this share of the largest are taken as rounding."""


@dataclass(frozen=True)
class Mixing:
    """Which rows of the stream move one row of the update: the same row, others along each axis.

    `cross` says that tokens of another tensor move it.
    """

    same_row: bool
    first_axis: bool
    second_axis: bool
    cross: bool
    causal: bool | None

    @property
    def mixes(self) -> bool:
        return self.first_axis or self.second_axis


def mark_parallel(replay: Replay, writes: list[FittedWrite]) -> None:
    """Mark each write whose update does not depend on the write before it as parallel to it."""
    for earlier, later in itertools.pairwise(writes):
        if earlier.settle is not None or later.call.frozen is None or earlier.call.live is None:
            continue
        gradient = _gradient(later.call.frozen, earlier.call.live)
        if gradient is None or not gradient.any():
            later.parallel = True
            later.state, later.sources = earlier.state, earlier.sources
            later.entered = earlier.entered


def mixing(replay: Replay, write: FittedWrite) -> Mixing:
    """Find which tokens of the stream move the update, by gradients at several rows of it.

    Several rows are tried because some may be padding.
    """
    update, state = write.call.frozen, write.state
    shape = replay.before.shape
    if update is None or state is None or not update.requires_grad:
        return Mixing(False, False, False, False, None)
    # A stream without an example axis, [token, width], is one example along the first axis.
    rows = shape[:-1] if len(shape) > 2 else torch.Size((shape[0], 1))
    same_row = first = second = cross = ahead_first = ahead_second = False
    for i, j in itertools.product({0, rows[0] // 2, rows[0] - 1}, {rows[1] // 2, rows[1] - 1}):
        norms, foreign = _row_gradients(write, (i, j), rows, replay.others)
        cross = cross or foreign
        moved = norms > _FAINT * float(norms.max())
        same_row = same_row or bool(moved[i, j])
        column, line = moved[:, j].clone(), moved[i].clone()
        column[i] = line[j] = False
        first, second = first or bool(column.any()), second or bool(line.any())
        ahead_first = ahead_first or bool(column[i:].any())
        ahead_second = ahead_second or bool(line[j:].any())
    ahead = ahead_first if first and not second else ahead_second
    return Mixing(same_row, first, second, cross, not ahead if first or second else None)


def role_of(mix: Mixing, replay: Replay, write: FittedWrite, earlier: int) -> str:
    """`attention` and `mixer` mix tokens, `cross-attention` another stack's tokens.

    A branch that depends on nothing (a dead or constant one) is a plain `branch`.
    """
    if mix.mixes:
        names = [
            f"{s.path.removeprefix(replay.path)} {type(s.module).__name__}".lower()
            for s in replay.calls
            if earlier < s.order <= write.call.order and not s.norm
        ]
        return "attention" if any("att" in name for name in names) else "mixer"
    if mix.cross:
        return "cross-attention"
    return "mlp" if mix.same_row else "branch"


def placement_of(replay: Replay, write: FittedWrite, earlier: int) -> str:
    """Where norms stand around this branch, by what they take in and give out."""
    inside = [s for s in replay.calls if earlier < s.order <= write.call.order]
    enters = any(s.norm and _reads(s, write.entered) for s in inside)
    if write.parallel and not enters:
        enters = any(s.norm and _reads(s, write.entered) for s in replay.calls)
    exits = any(
        s.norm and s.returned is not None and _equal(s.returned, write.call.returned)
        for s in inside
    )
    settles = write.settle is not None and write.settle.norm
    return placement_name(enters, exits, settles)


def placement_name(enters: bool, exits: bool, settles: bool) -> str:
    """The word for norms before the branch, on its output, on the stream after the addition."""
    names = {
        (True, False, False): "pre",
        (False, True, False): "output",
        (True, True, False): "sandwich",
        (False, False, True): "post",
        (True, False, True): "pre-and-post",
        (False, False, False): "none",
    }
    return names.get((enters, exits, settles), "several")


def _equal(first: Tensor, second: Tensor | None) -> bool:
    return second is not None and first.shape == second.shape and bool(torch.equal(first, second))


def _reads(call: ReplayedCall, state: Tensor | None) -> bool:
    if state is None or call.entered is None or call.entered.numel() != state.numel():
        return False
    entered = call.entered.reshape(state.shape)
    return bool(torch.allclose(entered, state, rtol=1e-5, atol=float(state.abs().max()) * 1e-6))


def _gradient(output: Tensor, source: Tensor) -> Tensor | None:
    if not output.requires_grad or not source.requires_grad:
        return None
    return pulled_back(output, _direction(output), [source])[0]


def pulled_back(
    output: Tensor, cotangent: Tensor, sources: Sequence[Tensor], *, retain_graph: bool = True
) -> tuple[Tensor | None, ...]:
    """The gradient of <cotangent, output> in each source; None where the output does not depend.

    To give torch the number costs a product and returns the same bits as to give it the cotangent,
    upon which it imports sympy.
    """
    return torch.autograd.grad(
        (output * cotangent).sum(), sources, retain_graph=retain_graph, allow_unused=True
    )


def _direction(like: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(like.shape, generator=generator).to(like)


def _row_gradients(
    write: FittedWrite, row: tuple[int, int], rows: torch.Size, others: list[Tensor]
) -> tuple[Tensor, bool]:
    """Norm of the gradient of one row of the update at every row of the state; cross or not.

    Rows are counted on the first two axes; lanes, if any, are folded into the width.
    """
    update, state = write.call.frozen, write.state
    assert update is not None and state is not None
    cotangent = torch.zeros_like(update).reshape(*rows[:2], -1)
    cotangent[row] = _direction(cotangent[row])
    gradient, *foreign = pulled_back(update, cotangent.reshape(update.shape), [state, *others])
    cross = any(
        _mixes_foreign(write, gradient, total, other)
        for other, total in zip(others, foreign, strict=True)
        if total is not None
    )
    if gradient is None:
        return torch.zeros(rows[:2], device=update.device), cross
    return torch.linalg.vector_norm(gradient.reshape(*rows[:2], -1), dim=-1), cross


def _mixes_foreign(
    write: FittedWrite, gradient: Tensor | None, total: Tensor, other: Tensor
) -> bool:
    """Whether several tokens of another tensor reach the update by a way round the stream.

    What comes through the stream itself (an earlier write read that tensor) is taken away.
    """
    direct = total
    factor = write.sources[-1][0]
    if gradient is not None and factor != 0.0:
        for weight, source in write.sources:
            if not source.requires_grad or source.shape != gradient.shape:
                continue
            (through,) = pulled_back(source, gradient * (weight / factor), [other])
            if through is not None:
                direct = direct - through
    moved = torch.linalg.vector_norm(direct, dim=-1)
    return int((moved > 1e-4 * torch.linalg.vector_norm(total, dim=-1).max()).sum()) > 1
