"""k directions carried through depth, made orthonormal after every layer: Lyapunov exponents.

    Q_l R_l = J_l Q_(l-1)        QR of every example; R_ii > 0
    exponent_i = (1/L) sum_l log R_l,ii

(Benettin et al. 1980.) The sum of the first i logarithms is that of the growth of an i-dimensional
volume, so that the exponents tend to (1/L) log sigma_i of the product J_L ... J_1 as depth grows,
also where the product itself would overflow or its smaller singular values would drown in the
largest. With `adjoint` the directions go from the last layer to the first.

The start is Gaussian and not orthonormal: U = Q_0 R_0. So |J_l ... J_1 U|_F^2 / k, which is the
norm of the product of all R, estimates |J_l ... J_1|_F^2 on the way (`log_frobenius`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from leadline.numerics.linear.linear_maps import LinearMap

__all__ = ["Frame", "orthonormal"]

Tensor = torch.Tensor
DEPENDENT = 1e-5
"""The part of a unit vector outside the others below which the Gram matrix, whose error is the
square root of rounding, does not make it orthonormal."""


def orthonormal(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Q [k, example, token, width] and R [example, k, k] in float64, with a diagonal >= 0.

    vectors_j = sum_i Q_i R_ij. By the Cholesky factor of the Gram matrix in float64, once more where
    its rounding, eps over the square of the smallest diagonal entry, is not below that of the
    vectors; where they are too nearly dependent for that, by Householder's reflections.
    """
    k, examples = vectors.shape[:2]
    rows = vectors.reshape(k, examples, -1).transpose(0, 1).double()
    size = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    rows = rows / torch.where(size > 0, size, torch.ones_like(size))
    factors = _by_cholesky(rows, torch.finfo(vectors.dtype).eps)
    q, r = _by_reflections(rows) if factors is None else factors
    back = q.transpose(0, 1).reshape(vectors.shape).to(vectors.dtype)
    return back, r * size.mT


def _by_cholesky(rows: Tensor, rounding: float) -> tuple[Tensor, Tensor] | None:
    """Rows orthonormal to `rounding` and R, or None where they are too nearly dependent."""
    first = _cholesky_step(rows)
    if first is None:
        return None
    least = float(first[1].diagonal(dim1=-2, dim2=-1).min())
    if torch.finfo(torch.float64).eps < rounding * least**2:
        return first
    second = _cholesky_step(first[0])
    return None if second is None else (second[0], second[1] @ first[1])


def _cholesky_step(rows: Tensor) -> tuple[Tensor, Tensor] | None:
    lower, failed = torch.linalg.cholesky_ex(rows @ rows.mT)
    if bool(failed.any()) or float(lower.diagonal(dim1=-2, dim2=-1).min()) < DEPENDENT:
        return None
    return torch.linalg.solve_triangular(lower, rows, upper=False), lower.mT


def _by_reflections(rows: Tensor) -> tuple[Tensor, Tensor]:
    q, r = torch.linalg.qr(rows.mT)
    sign = torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(r.dtype)
    return (q * sign.unsqueeze(-2)).mT, r * sign.unsqueeze(-1)


@dataclass(frozen=True)
class Frame:
    """Directions that are orthonormal per example, and what QR took out of them so far.

    `growth` [example, k] is log R_ii of the last layer, `total` the sum over all of them. `spread`
    is the product of all R divided by exp(`level`), which has norm 1.
    """

    directions: Tensor
    growth: Tensor
    total: Tensor
    spread: Tensor
    level: Tensor

    @classmethod
    def random(
        cls,
        shape: tuple[int, int, int],
        k: int,
        *,
        dtype: torch.dtype,
        seed: int,
        device: torch.device | None = None,
    ) -> Frame:
        """A Gaussian start, the same on every device."""
        generator = torch.Generator().manual_seed(seed)
        start = torch.randn(k, *shape, generator=generator, dtype=torch.float64)
        directions, r = orthonormal(start.to(device, dtype))
        zero = r.new_zeros(shape[0], k)
        spread, level = _scaled(r, r.new_zeros(shape[0]))
        return cls(directions, zero, zero, spread, level)

    def through(self, layer: LinearMap, *, adjoint: bool = False) -> Frame:
        """The frame behind one more layer (before it, with `adjoint`)."""
        moved = layer.adjoint(self.directions) if adjoint else layer.forward(self.directions)
        directions, r = orthonormal(moved)
        growth = r.diagonal(dim1=-2, dim2=-1).log()
        spread, level = _scaled(r @ self.spread, self.level)
        return Frame(directions, growth, self.total + growth, spread, level)

    @property
    def log_frobenius(self) -> Tensor:
        """[example] log of the norm of the start after all layers, per direction."""
        return self.level - 0.5 * math.log(self.directions.shape[0])

    @property
    def squares(self) -> tuple[Tensor, Tensor]:
        """[example, k] |P u|^2 of each start direction u over exp(2 level), and level."""
        return self.spread.square().sum(-2), self.level


def _scaled(matrix: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
    size = torch.linalg.matrix_norm(matrix)
    safe = torch.where(size > 0, size, torch.ones_like(size))
    return matrix / safe[:, None, None], level + size.log()
