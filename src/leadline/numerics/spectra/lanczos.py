"""Lanczos for one large matrix: the run of `krylov` with a single start vector and few operations.

Rows are orthogonalised against the two before them only. They lose orthogonality as a Ritz vector
converges (Paige 1971), to about eps over its residual, but M V' = V' T + F' B, on which the
certificate rests, holds to rounding all the same; copies of a Ritz value come after it has converged.
Orthogonalising against all from some step on would break just that: T would no longer be M's.

T is tridiagonal and small arrays are NumPy's: where a product with A costs as much as a few small
operations, their number counts. For matrices in the memory of the processor; elsewhere
`krylov.leading_vectors` does the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from leadline.numerics.spectra.certificate import ETAS, NEAR, NOISE
from leadline.numerics.spectra.krylov import CLOSER, CLUSTER, FREEZE, MOST, PROMISING, TIGHT
from leadline.numerics.spectra.stored import Chunked

__all__ = ["lanczos"]

Tensor = torch.Tensor


def lanczos(matrix: Chunked, *, most: int = MOST) -> tuple[Tensor, Tensor, int]:
    """(Ritz vector [n], positive vector [n], steps) of a nonnegative matrix."""
    n = matrix.shape[1]
    most = min(most, n)
    basis = matrix.first_image.new_empty(most + 1, n)
    rows = basis.numpy()
    rows[0] = 1 / math.sqrt(n)
    new = matrix.first_image / math.sqrt(n)
    least = FREEZE * torch.finfo(basis.dtype).eps
    projected = np.zeros((most + 1, most + 1))
    schedule = _Schedule()
    length, before, step = 0.0, math.inf, 1
    while True:
        vector, row = new.numpy(), rows[step - 1]
        along = float(np.einsum("i,i", row, vector))
        vector -= along * row
        size = max(along, length)
        length = math.sqrt(np.einsum("i,i", vector, vector))
        frozen = length <= least * size
        length = 0.0 if frozen else length
        projected[step - 1, step - 1], projected[step, step - 1] = along, length
        np.multiply(vector, 1 / length if length else 0.0, out=rows[step])
        last = frozen or step == most
        if last or step >= schedule.next:
            space = _Space.of(basis[: step + 1], projected[: step + 1, :step])
            missing = space.residual / PROMISING
            if last or missing <= 1:
                positive, slack = space.positive(every=last)
                missing = slack / (TIGHT if space.alone else TIGHT / CLOSER)
                # Rounding is all that is left: the other documents have converged, too.
                stalled = space.residual <= least and slack > before / 2
                if last or stalled or missing <= 1:
                    return space.leading(), positive, step
                before = slack
            schedule.after(step, space.residual, missing)
        # The part along the row before goes into the sum that the product is added to.
        new = matrix.gram(basis[step], basis[step - 1] * -length)
        step += 1


@dataclass(frozen=True)
class _Space:
    """What `krylov.Space` is, for one matrix: rows [k + 1, n], `length` the number B."""

    rows: Tensor
    values: np.ndarray
    vectors: np.ndarray
    length: float

    @staticmethod
    def of(rows: Tensor, projected: np.ndarray) -> _Space:
        # Torch's eigensolver, not NumPy's, which starts threads of its own; it reads the lower
        # triangle alone. The last row of `projected` is B.
        values, vectors = torch.linalg.eigh(torch.from_numpy(projected[:-1]))
        return _Space(rows, values.numpy(), vectors.numpy(), float(projected[-1, -1]))

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
        """The vector that certifies and its slack, as `certificate.positive_vector` gives them."""
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
        positive = bool(z.min() > 0)
        room = (ground - noise - r) / (z if positive else np.where(z > 0, z, 1))
        proved = eta - (room if positive else np.where(z > 0, room, -np.inf)).min(1)
        best = int(proved.argmin())
        chosen = (1 + eta[best]).astype(z.dtype) * z[best] + r[best]
        if not np.isfinite(proved[best]):
            chosen[:] = ground
        elif not chosen.min() > 0:
            chosen[chosen <= 0] = ground
        return torch.from_numpy(chosen), float(proved[best])


class _Schedule:
    """When to look: residuals fall about geometrically, so two looks tell when the next pays."""

    def __init__(self) -> None:
        self.next = 3
        self._last_look: tuple[int, float] | None = None

    def after(self, step: int, residual: float, missing: float) -> None:
        """`missing` is the factor by which what is awaited must still fall."""
        residual = max(residual, 1e-30)
        ahead = math.inf
        if self._last_look is not None and residual < self._last_look[1]:
            rate = math.log(self._last_look[1] / residual) / (step - self._last_look[0])
            # A little later than expected: a look in vain costs more than a step too many.
            ahead = 1.3 * math.log(missing) / rate
        self._last_look = step, residual
        self.next = step + max(1, math.floor(min(ahead, step)))
