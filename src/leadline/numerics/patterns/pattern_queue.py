"""What attention of several layers waits for: singular values found together, numbers fetched once.

A Krylov run on the few small matrices of one layer is mostly the overhead of small operations, and
a number that is fetched makes a device stand still. Matrices that are small enough to be multiplied
in a batch wait until there are `TOGETHER` entries of one shape; the numbers wait until somebody
wants to read them.
"""

from __future__ import annotations

import torch

from leadline.anatomy.exactness import exactly
from leadline.numerics.denormals import flushed
from leadline.numerics.patterns.pattern_numbers import GroupNumbers, fetch
from leadline.numerics.spectra.spectrum import SpectralNorm, leading_pair, spectral_norm

__all__ = ["TOGETHER", "PatternQueue"]

Tensor = torch.Tensor
TOGETHER = 1 << 20
"""Entries of one shape that are not kept waiting any longer: 4 MB, or 64 matrices of 128 x 128."""


class PatternQueue:
    """Groups of matrices whose numbers nobody has read yet."""

    def __init__(self) -> None:
        self._unread: list[GroupNumbers] = []
        self._matrices: dict[tuple[object, ...], list[tuple[GroupNumbers, Tensor]]] = {}

    def add(self, group: GroupNumbers, matrices: Tensor | None = None) -> None:
        """Let a group wait; where it has no singular values yet, [matrix, m, n] for them."""
        self._unread.append(group)
        if matrices is None:
            return
        kind = (*matrices.shape[1:], matrices.dtype, matrices.device)
        alike = self._matrices.setdefault(kind, [])
        alike.append((group, matrices))
        if sum(one.numel() for _, one in alike) >= TOGETHER:
            _solve(self._matrices.pop(kind))

    @exactly()
    def settle(self) -> None:
        """Find what waits, and fetch all numbers."""
        for alike in self._matrices.values():
            _solve(alike)
        self._matrices.clear()
        fetch(self._unread)
        self._unread.clear()


def _solve(alike: list[tuple[GroupNumbers, Tensor]]) -> None:
    matrices = [one for _, one in alike]
    counts = [len(one) for one in matrices]
    together = matrices[0] if len(matrices) == 1 else torch.cat(matrices)
    with flushed():
        if min(together.shape[1:]) < 2:
            firsts, seconds = _split(spectral_norm(together), counts), [None] * len(counts)
        else:
            firsts, seconds = (_split(one, counts) for one in leading_pair(together))
    for (group, _), first, second in zip(alike, firsts, seconds, strict=True):
        group.pair = first, second


def _split(norm: SpectralNorm, counts: list[int]) -> list[SpectralNorm]:
    columns = (norm.value, norm.lower, norm.upper, norm.iterations)
    parts = zip(*(column.split(counts) for column in columns), strict=True)
    return [SpectralNorm(*part) for part in parts]
