"""Lanczos for many matrices: the run of `krylov` with a single start vector and few operations.

Several steps are taken with one chunk of the batch after the other, so that its matrices are read
once and then stay in the cache; no product A'A is formed. What is small is done for all matrices
together at a look: the Ritz problem, the vector that certifies, and what has run into an invariant
space. Each matrix has a schedule of its own, and one that is done leaves the batch.

Rows are orthogonalised against the two before them only, as in `lanczos`, which says why that is
enough. Nothing is fetched from the device but a few numbers per matrix at a look.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch

from leadline.numerics.spectra.certificate import positive_vector
from leadline.numerics.spectra.krylov import (
    CLOSER,
    CLUSTER,
    FREEZE,
    MOST,
    PROMISING,
    TIGHT,
    Leading,
    Space,
)

__all__ = ["batch_lanczos"]

Tensor = torch.Tensor

ABREAST = 1 << 19
"""Entries of the matrices that take their steps together: 2 MB in float32. At 128 tokens 1 to 12 MB
cost the same to 5 %, half a megabyte 15 % more; at 256 tokens 1 MB costs 10 % more."""

FIRST_LOOK, SPACING = 4, 1.4
"""The steps before the first look, and the factor to the next: steps that nobody needs against looks
in vain. On random heads of 64 and 128 tokens that no benchmark uses, 1.3 cost up to a fifth more, 1.5
from a tenth less to a seventh more, 1.7 a tenth to a quarter more."""


def batch_lanczos(matrices: Tensor, *, most: int = MOST) -> Leading:
    """The leading vectors of nonnegative matrices [matrix, m, n]."""
    count, m, n = matrices.shape
    device = matrices.device
    ritz, positive = (matrices.new_empty(count, n) for _ in range(2))
    iterations = np.zeros(count, dtype=np.int64)
    alive = np.arange(count)
    schedule = _Timetable(count)
    run = _Recurrence(matrices, room=16)
    size = max(1, ABREAST // (m * n))
    room = matrices.new_empty(min(size, count), m, n)
    for step in _looks(min(most, n)):
        going = _index(alive, device)
        for first in range(0, len(alive), size):
            part = slice(first, first + size)
            if len(alive) == count:
                chunk = matrices[part]
            else:
                # Into the same room every time, which is in the cache already.
                chunk = room[: len(going[part])]
                torch.index_select(matrices, 0, going[part], out=chunk)
            run.advance(part, chunk, step)
        run.steps = step
        places = np.flatnonzero(schedule.due(alive, step) | (step == min(most, n)))
        if not len(places):
            continue
        looked = alive[places]
        space = run.space(_index(places, device))
        top = space.values[:, -1].clamp_min(torch.finfo(matrices.dtype).tiny)
        second = space.values[:, -min(2, step)]
        residual, alone, length = _numbers(
            space.residuals(1) / top, top - second > CLUSTER * top, space.outside[:, 0, 0]
        )
        last = (length == 0) | (step == min(most, n))
        missing = residual / PROMISING
        trial = np.flatnonzero(last | (missing <= 1))
        ended = np.zeros(len(looked), dtype=bool)
        if len(trial):
            space = space.take(_index(trial, device))
            vectors, slack = positive_vector(space, every=bool(last.any()))
            (slacks,) = _numbers(slack)
            before, schedule.slack[looked[trial]] = schedule.slack[looked[trial]], slacks
            missing[trial] = slacks / np.where(alone[trial] > 0, TIGHT, TIGHT / CLOSER)
            # Rounding is all that is left: the other documents have converged, too.
            noise = FREEZE * torch.finfo(matrices.dtype).eps
            stalled = (residual[trial] <= noise) & (slacks > before / 2)
            ended[trial] = last[trial] | stalled | (missing[trial] <= 1)
            numbers = looked[ended]
            if len(numbers):
                chosen = _index(np.flatnonzero(ended[trial]), device)
                where = _index(numbers, device)
                ritz[where] = space.leading(1)[:, 0].index_select(0, chosen)
                positive[where] = vectors.index_select(0, chosen)
                iterations[numbers] = step
        schedule.after(looked, step, residual, missing)
        if ended.any():
            keep = np.delete(np.arange(len(alive)), places[ended])
            if not len(keep):
                break
            alive = alive[keep]
            run.keep(_index(keep, device))
    return Leading(
        ritz[:, None],
        positive,
        torch.from_numpy(iterations).to(device),
        torch.zeros(count, dtype=torch.float64, device=device),
    )


def _looks(most: int) -> Iterator[int]:
    """Numbers of steps after which the Ritz problems are solved."""
    step = FIRST_LOOK
    while step < most:
        yield step
        step = max(step + 2, math.ceil(SPACING * step))
    yield most


class _Recurrence:
    """The rows of a batch and its tridiagonal T, with room for some more rows."""

    def __init__(self, matrices: Tensor, *, room: int) -> None:
        count, _, n = matrices.shape
        self.steps = 0
        self._rows = matrices.new_empty(count, room + 1, n)
        self._rows[:, 0] = 1 / math.sqrt(n)
        # Diagonal and subdiagonal of T [step, matrix, 1]; the last entry of the second is B.
        self._along = matrices.new_empty(room, count, 1)
        self._length = matrices.new_empty(room, count, 1)

    def advance(self, part: slice, matrices: Tensor, steps: int) -> None:
        """Go on to so many steps with a part of the batch, its matrices [matrix, m, n]."""
        while steps > len(self._along):
            self._grow()
        transposed = matrices.mT
        old = max(0, self.steps - 1)
        rows = self._rows[part, old : steps + 1].unbind(1)
        along = self._along[old:steps, part].unbind()
        length = self._length[old:steps, part].unbind()
        for k in range(self.steps - old, steps - old):
            row = rows[k]
            # Rows times matrices: `bmm` of a matrix and one column is several times slower.
            image = torch.bmm(torch.bmm(row[:, None], transposed), matrices)[:, 0]
            if k:
                image.addcmul_(rows[k - 1], length[k - 1], value=-1)
            torch.sum(row * image, 1, keepdim=True, out=along[k])
            image.addcmul_(row, along[k], value=-1)
            torch.linalg.vector_norm(image, dim=1, keepdim=True, out=length[k])
            torch.div(image, length[k], out=rows[k + 1])

    def space(self, which: Tensor) -> Space:
        """The Krylov spaces of the matrices at these places."""
        k = self.steps
        rows, along, length = (
            each if len(which) == len(each) else each.index_select(0, which)
            for each in (self._rows[:, : k + 1], self._along[:k, :, 0].T, self._length[:k, :, 0].T)
        )
        # What follows a new part that is only rounding is zero: the space is invariant.
        size = along.clone()
        torch.maximum(along[:, 1:], length[:, :-1], out=size[:, 1:])
        frozen = ~(length > FREEZE * torch.finfo(rows.dtype).eps * size)
        gone = frozen.cumsum(1) > 0
        length = torch.where(gone, 0, length)
        rows[:, 1:].masked_fill_(gone[..., None], 0)
        along = torch.cat([along[:, :1], torch.where(gone[:, :-1], 0, along[:, 1:])], 1)
        projected = torch.diag_embed(along.double())
        projected.diagonal(-1, 1, 2).copy_(length[:, :-1])
        # The eigensolver reads the lower triangle alone.
        values, vectors = torch.linalg.eigh(projected)
        return Space(rows, values, vectors, length[:, -1, None, None].double())

    def keep(self, which: Tensor) -> None:
        """Go on with the matrices at these places."""
        used = self.steps + 1
        # In place: the room of those that left is not given back and taken anew.
        kept = self._rows[:, :used].index_select(0, which)
        self._rows = self._rows[: len(which)]
        self._rows[:, :used] = kept
        self._along = self._along.index_select(1, which)
        self._length = self._length.index_select(1, which)

    def _grow(self) -> None:
        more = len(self._along)
        self._rows = torch.nn.functional.pad(self._rows, (0, 0, 0, more))
        self._along = torch.nn.functional.pad(self._along, (0, 0, 0, 0, 0, more))
        self._length = torch.nn.functional.pad(self._length, (0, 0, 0, 0, 0, more))


class _Timetable:
    """When to look: residuals fall about geometrically, so two looks tell when the next pays."""

    def __init__(self, count: int) -> None:
        self.slack = np.full(count, np.inf)
        self._next = np.zeros(count)
        self._step = np.zeros(count)
        self._residual = np.full(count, np.nan)

    def due(self, which: np.ndarray, step: int) -> np.ndarray:
        return self._next[which] <= step

    def after(
        self, which: np.ndarray, step: int, residual: np.ndarray, missing: np.ndarray
    ) -> None:
        """`missing` is the factor by which what is awaited must still fall."""
        residual = np.maximum(residual, 1e-30)
        with np.errstate(invalid="ignore", divide="ignore"):
            rate = np.log(self._residual[which] / residual) / (step - self._step[which])
            ahead = np.where(rate > 0, np.log(missing) / rate, 1)
        self._step[which], self._residual[which] = step, residual
        # Not later than after as many steps again.
        self._next[which] = step + np.minimum(ahead, step)


def _numbers(*columns: Tensor) -> list[np.ndarray]:
    """Numbers of each matrix, in one fetch."""
    return list(torch.stack([column.double() for column in columns]).cpu().numpy())


def _index(numbers: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(numbers).to(device)
