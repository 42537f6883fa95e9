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

__all__ = ["Frame", "orthonormal", "orthonormal_rows"]

Tensor = torch.Tensor
DEPENDENT = 1e-5
"""The part of a unit vector outside the others below which the Gram matrix, whose error is the
square root of rounding, does not make it orthonormal."""


def orthonormal(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Q [k, example, token, width] and R [example, k, k] in float64, with a diagonal >= 0.

    vectors_j = sum_i Q_i R_ij.
    """
    q, r = orthonormal_rows(vectors.flatten(2).transpose(0, 1))
    return q.transpose(0, 1).reshape(vectors.shape), r


def orthonormal_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The same of rows [example, k, N]: Q of their shape and number type, and R.

    By the Cholesky factor of the Gram matrix in float64, once more where its rounding, eps over the
    square of the smallest diagonal entry, is not below that of the rows; where they are too nearly
    dependent for that, by Householder's reflections.
    """
    rounding = torch.finfo(rows.dtype).eps
    q, r, least = _cholesky_step(rows.double(), rounding)
    if not least >= DEPENDENT:
        q, r = _by_reflections(rows.double())
    elif torch.finfo(torch.float64).eps >= rounding * least**2:
        q, second, least = _cholesky_step(q, rounding)
        q, r = (q, second @ r) if least >= DEPENDENT else _by_reflections(rows.double())
    return q.to(rows.dtype), r


def _cholesky_step(rows: Tensor, rounding: float) -> tuple[Tensor, Tensor, float]:
    """Q, R, and the smallest part of a row, of its own size, outside of those before it.

    That part is 0 or NaN where the Gram matrix has no Cholesky factor, and Q and R are none.
    """
    gram = rows @ rows.mT
    size = gram.diagonal(dim1=-2, dim2=-1).sqrt()
    size = torch.where(size > 0, size, 1.0).unsqueeze(-1)
    lower, failed = torch.linalg.cholesky_ex(gram / (size * size.mT))
    parts = torch.where(failed.unsqueeze(-1) > 0, 0.0, lower.diagonal(dim1=-2, dim2=-1))
    least = float(parts.min())
    if torch.finfo(torch.float64).eps <= rounding * least:
        # A product with the inverse is twice as fast, and loses a factor of 1 / least in rounding.
        one = torch.diag_embed(1.0 / size.squeeze(-1))
        q = torch.linalg.solve_triangular(lower, one, upper=False) @ rows
    else:
        q = torch.linalg.solve_triangular(lower, rows / size, upper=False)
    return q, lower.mT * size.mT, least


def _by_reflections(rows: Tensor) -> tuple[Tensor, Tensor]:
    size = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    size = torch.where(size > 0, size, 1.0)
    q, r = torch.linalg.qr((rows / size).mT)
    sign = torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(r.dtype)
    return (q * sign.unsqueeze(-2)).mT, r * sign.unsqueeze(-1) * size.mT


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
