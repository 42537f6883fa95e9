"""Lanczos for one large matrix: the run of `krylov` with a single start vector and few operations.

T is tridiagonal, its entries are Python numbers, small arrays are NumPy's; the basis is one tensor of
rows. Where a product with A costs as much as twenty small operations, their number counts. For
matrices in the memory of the processor; elsewhere `krylov.leading_vectors` does the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from leadline.numerics.certificate import ETAS, NEAR, NOISE
from leadline.numerics.krylov import CLOSER, CLUSTER, FREEZE, MOST, PROMISING, TIGHT
from leadline.numerics.stored import Chunked

__all__ = ["lanczos"]

Tensor = torch.Tensor


def lanczos(matrix: Chunked, *, most: int = MOST) -> tuple[Tensor, Tensor, int]:
    """(Ritz vector [n], positive vector [n], steps) of a nonnegative matrix."""
    n = matrix.shape[1]
    most = min(most, n)
    basis = matrix.first_image.new_empty(min(most, 24) + 1, n)
    rows = basis.numpy()
    rows[0] = 1 / math.sqrt(n)
    new = matrix.first_image / math.sqrt(n)
    least = FREEZE * torch.finfo(basis.dtype).eps
    diagonal: list[float] = []
    beside: list[float] = []
    schedule = _Schedule()
    step = 1
    while True:
        vector = new.numpy()
        along = float(np.einsum("i,i", rows[step - 1], vector))
        vector -= along * rows[step - 1]
        if beside:
            vector -= beside[-1] * rows[step - 2]
        # The two terms are all there is in exact arithmetic; the rest is rounding, once more.
        known = basis[:step]
        new.addmv_(known.mT, torch.mv(known, new), alpha=-1)
        length = math.sqrt(np.einsum("i,i", vector, vector))
        diagonal.append(along)
        frozen = length <= least * max(along, beside[-1] if beside else 0.0)
        length = 0.0 if frozen else length
        if step == len(rows):
            basis = torch.nn.functional.pad(basis, (0, 0, 0, len(rows)))
            rows = basis.numpy()
        np.multiply(vector, 1 / length if length else 0.0, out=rows[step])
        last = frozen or step == most
        if last or step >= schedule.next:
            space = _Space.of(basis[: step + 1], diagonal, beside, length)
            if last or space.residual <= PROMISING:
                positive, slack = space.positive(every=last)
                if last or slack <= (TIGHT if space.alone else TIGHT / CLOSER):
                    return space.leading(), positive, step
            schedule.after(step, space.residual)
        beside.append(length)
        new = matrix.gram(basis[step])
        step += 1


@dataclass(frozen=True)
class _Space:
    """What `krylov.Space` is, for one matrix: rows [k + 1, n], `length` the number B."""

    rows: Tensor
    values: np.ndarray
    vectors: np.ndarray
    length: float

    @staticmethod
    def of(rows: Tensor, diagonal: list[float], beside: list[float], length: float) -> _Space:
        projected = torch.zeros(len(diagonal), len(diagonal), dtype=torch.float64)
        entries = projected.numpy()
        np.fill_diagonal(entries, diagonal)
        # The eigensolver reads the lower triangle alone.
        np.fill_diagonal(entries[1:], beside)
        # Torch's, not NumPy's: that one would start threads of its own.
        values, vectors = torch.linalg.eigh(projected)
        return _Space(rows, values.numpy(), vectors.numpy(), length)

    @property
    def residual(self) -> float:
        """|M x - theta x| / theta of the first Ritz vector."""
        return float(abs(self.vectors[-1, -1]) * self.length / max(self.values[-1], 1e-300))

    @property
    def alone(self) -> bool:
        """Whether the second Ritz value is far from the first."""
        return len(self.values) == 1 or self.values[-2] < (1 - CLUSTER) * self.values[-1]

    def leading(self) -> Tensor:
        """M times the first Ritz vector."""
        top = self.vectors[:, -1]
        weights = np.append(top * self.values[-1], top[-1] * self.length)
        return torch.mv(self.rows.mT, torch.from_numpy(weights).to(self.rows.dtype))

    def positive(self, *, every: bool) -> tuple[Tensor, float]:
        """As `certificate.positive_vector`."""
        top = max(self.values[-1], 1e-300)
        eta = np.array(ETAS) if every else max(self.residual, ETAS[0]) * np.array(NEAR)
        gaps = 1 + eta[:, None] - self.values / top
        inside = torch.mm(
            torch.from_numpy(self.vectors[0] / gaps), torch.from_numpy(self.vectors.T)
        )
        z = torch.mm(inside.to(self.rows.dtype), self.rows[:-1]).numpy()
        new = (inside[:, -1:] * (self.length / top)).to(self.rows.dtype).numpy()
        r = new * self.rows[-1].numpy()
        ground = 1 / math.sqrt(z.shape[1])
        noise = NOISE * np.finfo(z.dtype).eps * z.max(1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            room = (ground - noise - r) / z
        room[z <= 0] = -np.inf
        proved = eta - room.min(1)
        best = int(proved.argmin())
        chosen = (1 + eta[best]).astype(z.dtype) * z[best] + r[best]
        chosen[chosen <= 0] = ground
        if not np.isfinite(proved[best]):
            chosen[:] = ground
        return torch.from_numpy(chosen), float(proved[best])


class _Schedule:
    """When to look: residuals fall about geometrically, so two looks tell when the next pays."""

    def __init__(self) -> None:
        self.next = 3
        self._seen: tuple[int, float] | None = None

    def after(self, step: int, residual: float) -> None:
        residual = max(residual, 1e-30)
        ahead = math.inf
        if self._seen is not None and residual < self._seen[1]:
            rate = math.log(self._seen[1] / residual) / (step - self._seen[0])
            ahead = math.log(residual / TIGHT) / rate
        self._seen = step, residual
        self.next = step + max(1, math.floor(min(ahead, 1 + step // 3)))
