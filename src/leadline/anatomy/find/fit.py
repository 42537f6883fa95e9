"""Fit the equation of one block: find the module outputs that were added to the stream.

Candidates are the outputs of the block's modules that have the stream's shape. Least squares in
float64 look for

    target = keep * state + gain_1 * u_1 + ... + gain_m * u_m        (m = 1, then 2, 3, 4)

where the target is the block's output, or the input of the norm that made the block's output
(post-norm), and the state is the block's input, or the output of a norm inside the block whose
own input is then the next target. The smallest m wins, then the smallest error.

Traps: equal tensors under two names would share a coefficient (0.5 + 0.5), so duplicates go
first; a fit that keeps nothing of the state proves nothing; below the square root of a norm's
epsilon the norm is linear and the un-normed branch fits as well, so the smallest error decides.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from leadline.anatomy.find.replay import Replay, ReplayedCall
from leadline.anatomy.spread import whole

__all__ = [
    "FIT_TOLERANCE",
    "MOST_UPDATES",
    "BlockFit",
    "FittedWrite",
    "Replacement",
    "fit_block",
    "fit_stream_alone",
    "fit_without_stream",
    "misses",
]

Tensor = torch.Tensor

FIT_TOLERANCE = 8.0
"""Largest miss of the fit, in eps of the replayed block; the judge is stricter, on fresh data."""

_SMALLEST_KEEP = 0.05
"""A fit that keeps less of the state than this proves nothing about it."""
_SMALLEST_GAIN = 1e-6
"""A stream between two writes that holds less of an update than this does not contain it."""
MOST_UPDATES = 4
"""Most updates in one sum; the number of subsets to try grows quickly with it."""
_MOST_TOKENS = 256
"""At most so many tokens, spread over the batch, enter the fit."""
_SNAP = 1e-5
"""A coefficient this close to 1 is 1."""


@dataclass
class FittedWrite:
    """One update with its place in the equation.

    `state` is a live tensor that the stream before this write contains with the factor
    `sources[-1][0]`; `sources` are all the live tensors whose weighted sum that stream is.
    """

    call: ReplayedCall
    keep: float
    gain: float | str
    settle: ReplayedCall | None = None
    state: Tensor | None = None
    sources: tuple[tuple[float, Tensor], ...] = ()
    entered: Tensor | None = None
    parallel: bool = False


@dataclass(frozen=True)
class BlockFit:
    """The writes in order. `opening` is a norm through which the stream goes before the first."""

    writes: tuple[FittedWrite, ...]
    eps: float
    opening: ReplayedCall | None = None


@dataclass(frozen=True)
class Replacement:
    """A block's output, or what its last norm takes in, as a sum without the stream.

    `certain` is True when every part is what a linear map returned, which adds no stream inside.
    """

    parts: tuple[tuple[float, ReplayedCall], ...]
    settle: ReplayedCall | None
    certain: bool


@dataclass(frozen=True)
class _UpdateCandidate:
    call: ReplayedCall
    value: Tensor
    gain: str | None = None


@dataclass(frozen=True)
class _Solution:
    state: ReplayedCall | None
    updates: tuple[_UpdateCandidate, ...]
    keep: float
    gains: tuple[float, ...]
    eps: float


def misses(predicted: Tensor, after: Tensor, before: Tensor) -> Tensor:
    """Per token: |predicted - after| over the larger of |before| and |after|, in eps of `after`.

    All three are [..., width]; the result has the leading shape. Zero tokens miss by zero.
    """
    dtype = torch.promote_types(after.dtype, torch.float32)
    error = torch.linalg.vector_norm(predicted.to(dtype) - after.to(dtype), dim=-1)
    scale = torch.maximum(
        torch.linalg.vector_norm(before.to(dtype), dim=-1),
        torch.linalg.vector_norm(after.to(dtype), dim=-1),
    )
    eps = torch.finfo(after.dtype).eps
    return torch.where(error == 0, error, error / (eps * scale))


def fit_block(replay: Replay) -> BlockFit | None:
    """The equation of a replayed block, or None when no module outputs explain its output."""
    search = _Search(replay)
    target, settle = search.closing_target()
    chain = search.explain(target, limit=len(replay.calls))
    if not chain:
        return None
    writes: list[FittedWrite] = []
    for index, solution in enumerate(chain):
        last = index == len(chain) - 1
        closing = settle if last else chain[index + 1].state
        writes += search.split(solution, closing)
    return BlockFit(tuple(writes), max(s.eps for s in chain), chain[0].state)


def fit_without_stream(replay: Replay) -> Replacement | None:
    """The module outputs that make up the block's output where the stream is no part of it."""
    search = _Search(replay)
    target, settle = search.closing_target()
    if settle is not None and not settle.norm:
        target, settle = replay.after, None
    parts = search.sum_without_stream(search.flat(target))
    if parts is None or any(call.norm and not search.norms_a_branch(call) for _, call in parts):
        return None
    certain = all(search.from_linear_map(call) for _, call in parts)
    return Replacement(parts, settle, certain)


def fit_stream_alone(replay: Replay) -> float | None:
    """The factor by which the block's output is its input, if it is nothing else."""
    search = _Search(replay)
    before, after = search.before.flatten(), search.after.flatten()
    factor = _snapped(float(before @ after / (before @ before)), 7) if before.any() else 0.0
    fits = search.miss(factor * search.before, search.after) <= FIT_TOLERANCE
    return factor if fits and factor else None


class _Search:
    """The candidates of one block as rows of one float64 matrix, and the fits among them."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self.shape = replay.before.shape
        tokens = replay.before.numel() // self.shape[-1]
        self.rows = torch.linspace(0, tokens - 1, min(tokens, _MOST_TOKENS)).long()
        self.before = self.flat(replay.before)
        self.after = self.flat(replay.after)
        self.candidates = self._candidates()
        self.settlers = [
            s
            for s in replay.calls
            if s.leaf
            and s.returned is not None
            and s.entered is not None
            and s.returned.shape == self.shape
            and s.entered.shape == self.shape
            and not torch.equal(s.returned, s.entered)
        ]

    def flat(self, tensor: Tensor) -> Tensor:
        """[tokens, width] in float64, at most `_MOST_TOKENS` tokens spread over the batch."""
        return tensor.detach().reshape(-1, self.shape[-1])[self.rows].double()

    def closing_target(self) -> tuple[Tensor, ReplayedCall | None]:
        """What the writes must add up to: the output, or what the norm that made it took in."""
        for call in reversed(self.settlers):
            if torch.equal(call.returned, self.replay.after):  # pyright: ignore[reportArgumentType]
                assert call.entered is not None
                return call.entered, call
        return self.replay.after, None

    def miss(self, predicted: Tensor, target: Tensor) -> float:
        """The largest miss of a token in eps of the replayed block; the values are float64."""
        eps = torch.finfo(self.replay.after.dtype).eps / torch.finfo(torch.float64).eps
        return float(misses(predicted, target, target).max()) / eps

    def sum_without_stream(self, target: Tensor) -> tuple[tuple[float, ReplayedCall], ...] | None:
        """The target as one module's output or as a sum of a few outputs, without the stream."""
        changed = [s for s in self._ranked() if not _is_identity(s)]
        same = next((s for s in changed if self._equals(s, target)), None)
        if same is not None:
            return ((1.0, same),)
        pool = [c for c in self.candidates if not _is_identity(c.call)]
        columns = torch.stack([*(c.value for c in pool), target]).flatten(1)
        scales = torch.linalg.vector_norm(columns, dim=1).clamp_min(1e-300)
        unit = columns / scales[:, None]
        for size in range(1, min(MOST_UPDATES, len(pool)) + 1):
            for members, coefficients in _screen(unit @ unit.T, size, state=False):
                gains = [
                    _snapped(float(c * scales[-1] / scales[m]), 7)
                    for m, c in zip(members, coefficients, strict=True)
                ]
                parts = [pool[m] for m in members]
                predicted = sum(
                    (g * c.value for g, c in zip(gains, parts, strict=True)),
                    torch.zeros_like(target),
                )
                if self.miss(predicted, target) <= FIT_TOLERANCE:
                    return tuple((g, c.call) for g, c in zip(gains, parts, strict=True))
        return None

    def norms_a_branch(self, norm: ReplayedCall) -> bool:
        """Whether a norm took in what another module returned; a sum may hold the stream."""
        entered = norm.entered
        return entered is not None and any(
            not s.norm and self._fits(s.returned) and self._equals(s, self.flat(entered))
            for s in self.replay.calls
            if s.order < norm.order
        )

    def from_linear_map(self, call: ReplayedCall) -> bool:
        """Whether what a module returned is what a linear map inside it, or it itself, returned."""
        value = self.flat(_value(call))
        return any(
            s.leaf and _is_linear_map(s) and self._equals(s, value) for s in self.replay.calls
        )

    def _equals(self, call: ReplayedCall, value: Tensor) -> bool:
        return self._fits(call.returned) and torch.equal(self.flat(_value(call)), value)

    def _fits(self, value: Tensor | None) -> bool:
        return (
            value is not None
            and value.numel() == self.replay.before.numel()
            and value.shape[-1] == self.shape[-1]
            and bool(torch.isfinite(value).all())
        )

    def _ranked(self) -> list[ReplayedCall]:
        # The outermost, latest name of a value stands for it: it is past any dropout. A module
        # that is called once is better still: its output needs no count of calls. One dropout that
        # stands behind several branches is worth the count: in training what is before it is not
        # what is written.
        calls = Counter(s.path for s in self.replay.calls)

        def rank(call: ReplayedCall) -> tuple[bool, int, int]:
            counted = calls[call.path] > 1 and not isinstance(call.module, nn.Dropout)
            return counted, call.path.count("."), -call.order

        return sorted(self.replay.calls, key=rank)

    def _candidates(self) -> list[_UpdateCandidate]:
        candidates: list[_UpdateCandidate] = []
        for call in self._ranked():
            if not self._fits(call.returned):
                continue
            flat = self.flat(_value(call))
            other_values = [self.before, self.after, *(c.value for c in candidates)]
            if not flat.any() or any(torch.equal(flat, other) for other in other_values):
                continue
            candidates.append(_UpdateCandidate(call, flat))
        return sorted(candidates, key=lambda c: c.call.order)

    def scaled_candidates(self) -> list[_UpdateCandidate]:
        """Candidates times a parameter vector of the block that no module of it owns by call."""
        called_paths = {s.path for s in self.replay.calls}
        vectors = [
            (name, whole(p.detach()).double().reshape(-1))
            for name, p in self.replay.block.named_parameters()
            if p.numel() == self.shape[-1]
            and f"{self.replay.path}.{name}".rpartition(".")[0] not in called_paths
        ]
        return [
            _UpdateCandidate(c.call, c.value * vector, f"{self.replay.path}.{name}")
            for c in self.candidates
            for name, vector in vectors
        ]

    def explain(self, target: Tensor, *, limit: int) -> list[_Solution] | None:
        """Solutions from the block's input up to the target, in order of execution."""
        flat = self.flat(target)
        if torch.equal(flat, self.before):
            return []
        usable = [c for c in self.candidates if c.call.order < limit]
        scaled = [c for c in self.scaled_candidates() if c.call.order < limit]
        for pool in (usable, sorted([*usable, *scaled], key=lambda c: c.call.order)):
            direct = self.solve(flat, None, self.before, pool, most=MOST_UPDATES)
            if direct is not None:
                return [direct]
        for settler in reversed(self.settlers):
            if settler.order >= limit or settler.returned is None or settler.entered is None:
                continue
            later_candidates = [c for c in usable if c.call.order > settler.order]
            state = self.flat(settler.returned)
            solution = self.solve(flat, settler, state, later_candidates, most=2)
            if solution is None:
                continue
            earlier = self.explain(settler.entered, limit=settler.order)
            if earlier is not None:
                return [*earlier, solution]
        return None

    def solve(
        self,
        target: Tensor,
        settler: ReplayedCall | None,
        state: Tensor,
        pool: Sequence[_UpdateCandidate],
        *,
        most: int,
    ) -> _Solution | None:
        pool = [c for c in pool if not torch.equal(c.value, target)]
        columns = torch.stack([state, *(c.value for c in pool), target]).flatten(1)
        scales = torch.linalg.vector_norm(columns, dim=1).clamp_min(1e-300)
        unit = columns / scales[:, None]
        gram = unit @ unit.T
        for size in range(1, min(most, len(pool)) + 1):
            best: _Solution | None = None
            for members, coefficients in _screen(gram, size):
                values = coefficients * scales[-1] / scales[[0, *members]]
                solution = self.judge(
                    target, settler, state, [pool[m - 1] for m in members], values
                )
                if solution is not None and (best is None or solution.eps < best.eps):
                    best = solution
            if best is not None:
                return best
        return None

    def judge(
        self,
        target: Tensor,
        settler: ReplayedCall | None,
        state: Tensor,
        updates: Sequence[_UpdateCandidate],
        values: Tensor,
    ) -> _Solution | None:
        if len({id(c.call) for c in updates}) < len(updates):
            return None
        raw = [float(v) for v in values]
        # A constant of the code (0.22) is a short number, a learned float64 one is not.
        best: _Solution | None = None
        for keep, *gains in ([_snapped(v, 7) for v in raw], [_snapped(v) for v in raw], raw):
            if abs(keep) < _SMALLEST_KEEP:
                continue
            predicted = keep * state
            for gain, update in zip(gains, updates, strict=True):
                predicted = predicted + gain * update.value
            if self._rounds_away(gains, updates, target):
                continue
            # The values are float64 copies; the unit of rounding is that of the replayed block.
            eps = torch.finfo(self.replay.after.dtype).eps / torch.finfo(torch.float64).eps
            miss = float(misses(predicted, target, state).max()) / eps
            if miss <= FIT_TOLERANCE and (best is None or miss < best.eps):
                best = _Solution(settler, tuple(updates), keep, tuple(gains), miss)
            if best is not None and best.eps <= 1.0:
                break
        return best

    def _rounds_away(
        self, gains: Sequence[float], updates: Sequence[_UpdateCandidate], target: Tensor
    ) -> bool:
        """Whether an update is smaller than the rounding of the sum: any gain would fit as well."""
        least = torch.finfo(self.replay.after.dtype).eps * float(torch.linalg.vector_norm(target))
        return any(
            abs(gain) * float(torch.linalg.vector_norm(update.value)) < least
            for gain, update in zip(gains, updates, strict=True)
        )

    def split(self, solution: _Solution, closing: ReplayedCall | None) -> list[FittedWrite]:
        """One keep and one gain per write, read off the streams found between the writes."""
        state_value = self.before if solution.state is None else self.flat(_value(solution.state))
        state = self.replay.stream if solution.state is None else solution.state.live
        entered = self.replay.before if solution.state is None else _value(solution.state)
        writes: list[FittedWrite] = []
        kept_share = 1.0
        assert state is not None
        sources: list[tuple[float, Tensor]] = [(1.0, state)]
        position = entered
        for index, (update, total) in enumerate(zip(solution.updates, solution.gains, strict=True)):
            last = index == len(solution.updates) - 1
            middle = None
            if not last:
                middle = self._between(state_value, solution.updates[: index + 1])
            after = solution.keep if last else (middle[0] if middle is not None else kept_share)
            keep = after / kept_share
            rest = solution.keep / after
            gain: float | str = _snapped(total / rest)
            if update.gain is not None:
                gain = update.gain
            writes.append(
                FittedWrite(
                    update.call,
                    _snapped(keep),
                    gain,
                    None,
                    sources[-1][1],
                    tuple(sources),
                    position,
                )
            )
            sources = [(factor * keep, tensor) for factor, tensor in sources]
            if update.call.live is not None:
                factor = gain if isinstance(gain, float) else 1.0
                sources.append((factor, update.call.live))
            position = middle[1] if middle is not None else None
            kept_share = after
        writes[-1].settle = closing
        return writes

    def _between(
        self, state: Tensor, updates: Sequence[_UpdateCandidate]
    ) -> tuple[float, Tensor] | None:
        """The stream after some of the writes, if a module took it in: (kept share, the tensor)."""
        latest = updates[-1].call.order
        for call in self.replay.calls:
            value = call.entered
            if value is None or value.numel() != self.replay.before.numel():
                continue
            if value.shape[-1] != self.shape[-1] or call.order <= latest:
                continue
            flat = self.flat(value)
            if torch.equal(flat, self.after):
                continue
            columns = torch.stack([state, *(u.value for u in updates)]).flatten(1)
            gram = columns @ columns.T
            right = columns @ flat.flatten()
            coefficients, info = torch.linalg.solve_ex(gram, right)
            if int(info) != 0 or abs(float(coefficients[0])) < _SMALLEST_KEEP:
                continue
            if float(coefficients[1:].abs().min()) < _SMALLEST_GAIN:
                continue
            fitted = (coefficients[:, None, None] * columns.view(-1, *flat.shape)).sum(0)
            eps = torch.finfo(self.replay.after.dtype).eps / torch.finfo(torch.float64).eps
            if float(misses(fitted, flat, state).max()) / eps <= FIT_TOLERANCE:
                return _snapped(float(coefficients[0])), value
        return None


def _value(call: ReplayedCall) -> Tensor:
    assert call.returned is not None
    return call.returned


def _is_identity(call: ReplayedCall) -> bool:
    """A dropout that is switched off hands on what it got, be that a branch or the stream."""
    entered, returned = call.entered, call.returned
    return (
        entered is not None
        and returned is not None
        and entered.shape == returned.shape
        and torch.equal(entered, returned)
    )


def _is_linear_map(call: ReplayedCall) -> bool:
    """A module of torch with a matrix for its weight, or the Conv1D of GPT-2."""
    weight = getattr(call.module, "weight", None)
    kind = type(call.module)
    known_class = kind.__module__.startswith("torch.nn.") or kind.__name__ == "Conv1D"
    return known_class and isinstance(weight, Tensor) and weight.ndim >= 2


def _screen(gram: Tensor, size: int, *, state: bool = True) -> list[tuple[tuple[int, ...], Tensor]]:
    """Subsets of `size` columns that explain the last column to about 1e-5, with coefficients.

    The first column is the stream, which is part of every subset, unless there is no `state`.
    """
    fixed = (0,) if state else ()
    members = list(itertools.combinations(range(len(fixed), gram.shape[0] - 1), size))
    if not members:
        return []
    index = torch.tensor([(*fixed, *m) for m in members])
    small = gram[index[:, :, None], index[:, None, :]]
    right = gram[index, -1]
    well = torch.linalg.cond(small) < 1e10
    solved = torch.zeros_like(right)
    if well.any():
        solved[well] = torch.linalg.solve(small[well], right[well])
    # Each column has norm 1, so this is the squared relative error of the fit.
    error = 1.0 - (solved * right).sum(1)
    good = (error.abs() < 1e-9) & well
    return [(members[i], solved[i]) for i in good.nonzero().flatten().tolist()]


def _snapped(value: float, digits: int = 9) -> float:
    """Nine digits hold any float32; a coefficient that close to 1 is 1."""
    if abs(value - 1.0) <= _SNAP:
        return 1.0
    return float(f"{value:.{digits}g}")
