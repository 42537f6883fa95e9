"""Write any tensor inside a replayed block as a sum of the stream and of what modules returned.

    value = c_0 * x + c_1 * u_1 + ... + c_m * u_m        (m at most 4, the smallest m wins)

Unlike the fit of a block's equation (`fit`), the stream need not be among the terms, other tensors
may be, and the value may stand anywhere in the block: that is how a fault is named, not how a design
is proved.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from leadline.anatomy.find.fit import FIT_TOLERANCE, MOST_UPDATES, misses
from leadline.anatomy.find.replay import Replay, ReplayedCall

__all__ = ["STREAM", "Term", "Terms", "hands_on", "terms_text"]

Tensor = torch.Tensor

STREAM = "x"
"""The name of the stream that entered the block."""
_MOST_TOKENS = 128
_MOST_SOURCES = 40
"""A block with more distinct outputs than this is not searched: the subsets would be too many."""


@dataclass(frozen=True)
class Term:
    """One summand: its factor, its name as seen from the block, and the call that returned it.

    The stream and tensors from elsewhere have no call.
    """

    factor: float
    name: str
    call: ReplayedCall | None = None

    @property
    def norm(self) -> bool:
        """Whether a norm returned it."""
        return self.call is not None and self.call.norm


@dataclass(frozen=True)
class _Source:
    name: str
    value: Tensor
    order: int
    call: ReplayedCall | None = None


class Terms:
    """The tensors of one replayed block, and sums among them."""

    def __init__(self, replay: Replay, others: Mapping[str, Tensor] | None = None) -> None:
        self.replay = replay
        self.width = replay.before.shape[-1]
        tokens = replay.before.numel() // self.width
        self._rows = torch.linspace(0, tokens - 1, min(tokens, _MOST_TOKENS)).long()
        self._eps = torch.finfo(replay.after.dtype).eps / torch.finfo(torch.float64).eps
        self._sources = self._all_sources(others or {})

    def explain(self, value: Tensor, *, before: int | None = None) -> tuple[Term, ...] | None:
        """The shortest sum that is this value; None where there is none.

        `before` is the order of a call: only what was there by then may take part.
        """
        if not self.fits(value):
            return None
        target = self.flat(value)
        limit = len(self.replay.calls) if before is None else before
        pool = [source for source in self._sources if source.order < limit]
        same = next((one for one in pool if torch.equal(one.value, target)), None)
        if same is not None:
            return (Term(1.0, same.name, same.call),)
        if not 0 < len(pool) <= _MOST_SOURCES or not target.any():
            return None
        columns = torch.stack([*(one.value for one in pool), target]).flatten(1)
        scales = torch.linalg.vector_norm(columns, dim=1)
        unit = columns / scales[:, None]
        gram = unit @ unit.T
        for size in range(1, min(MOST_UPDATES, len(pool)) + 1):
            best: tuple[float, tuple[Term, ...]] | None = None
            for members, coefficients in _sums(gram, size):
                factors = [
                    _rounded(float(c * scales[-1] / scales[m]))
                    for c, m in zip(coefficients, members, strict=True)
                ]
                miss = self._miss(factors, [pool[m].value for m in members], target)
                if miss <= FIT_TOLERANCE and (best is None or miss < best[0]):
                    chosen = tuple(
                        Term(f, pool[m].name, pool[m].call)
                        for f, m in zip(factors, members, strict=True)
                    )
                    best = miss, chosen
            if best is not None:
                return best[1]
        return None

    def flat(self, tensor: Tensor) -> Tensor:
        """[token, width] in float64, some tokens spread over the batch."""
        return tensor.detach().reshape(-1, self.width)[self._rows].double()

    def fits(self, value: Tensor | None) -> bool:
        """Whether a tensor has the size of the stream and is finite."""
        return (
            value is not None
            and value.numel() == self.replay.before.numel()
            and value.shape[-1] == self.width
            and bool(torch.isfinite(value).all())
        )

    def name(self, call: ReplayedCall) -> str:
        """The path of a call's module as seen from the block."""
        return call.path.removeprefix(f"{self.replay.path}.")

    def _all_sources(self, others: Mapping[str, Tensor]) -> list[_Source]:
        """The stream, then what modules returned, the outermost name of each value, then others."""
        sources = [_Source(STREAM, self.flat(self.replay.before), -1)]
        calls = Counter(call.path for call in self.replay.calls)
        ranked = sorted(
            self.replay.calls,
            key=lambda c: (hands_on(c), calls[c.path] > 1, c.path.count("."), -c.order),
        )
        for call in ranked:
            if call.returned is None or not self.fits(call.returned):
                continue
            value = self.flat(call.returned)
            if value.any() and not any(torch.equal(value, one.value) for one in sources):
                sources.append(_Source(self.name(call), value, call.order, call))
        for name, tensor in others.items():
            if self.fits(tensor) and tensor.any():
                value = self.flat(tensor)
                if not any(torch.equal(value, one.value) for one in sources):
                    sources.append(_Source(name, value, -1))
        return [sources[0], *sorted(sources[1:], key=lambda one: one.order)]

    def _miss(self, factors: list[float], values: list[Tensor], target: Tensor) -> float:
        total = sum(
            (factor * value for factor, value in zip(factors, values, strict=True)),
            torch.zeros_like(target),
        )
        return float(misses(total, target, target).max()) / self._eps


def terms_text(terms: tuple[Term, ...]) -> str:
    """`x + 2 attn`."""
    parts: list[str] = []
    for term in terms:
        sign = "-" if term.factor < 0 else "+"
        size = abs(term.factor)
        factor = "" if size == 1.0 else f"{size:.6g} "
        parts.append(f"{sign} {factor}{term.name}" if parts or sign == "-" else factor + term.name)
    return " ".join(parts)


def hands_on(call: ReplayedCall) -> bool:
    """Whether a call returned what it took in, as a dropout does that is switched off."""
    entered, returned = call.entered, call.returned
    return (
        entered is not None
        and returned is not None
        and entered.shape == returned.shape
        and torch.equal(entered, returned)
    )


def _sums(gram: Tensor, size: int) -> list[tuple[tuple[int, ...], Tensor]]:
    """Subsets of columns whose span holds the last column to about 1e-5, with coefficients."""
    members = list(itertools.combinations(range(gram.shape[0] - 1), size))
    index = torch.tensor(members)
    small = gram[index[:, :, None], index[:, None, :]]
    right = gram[index, -1]
    # Singular subsets would give any coefficients; a little on the diagonal keeps the solver quiet.
    solved = torch.linalg.solve(small + 1e-13 * torch.eye(size, dtype=gram.dtype), right)
    error = 1.0 - (solved * right).sum(1)
    return [(members[i], solved[i]) for i in (error.abs() < 1e-9).nonzero().flatten().tolist()]


def _rounded(value: float) -> float:
    return 1.0 if abs(value - 1.0) <= 1e-5 else float(f"{value:.7g}")
