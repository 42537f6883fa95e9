"""Sizes of products of two weight matrices that are never formed as a whole.

For A = L R with L [in, inner] and R [inner, out], of every head:

    |A|_1    the largest column sum of |A|       |A|_inf   the largest row sum of |A|

from blocks of columns. The largest singular value of L R comes from a Lanczos run on x -> A'(A x)
with full reorthogonalisation (Golub and Kahan 1965): the run ends when the residual of its leading
Ritz pair is below `TIGHT` of its value, so the singular value is right to half of that, relatively.
"""

from __future__ import annotations

import math

import torch

from leadline.anatomy.exactness import exactly

__all__ = ["column_and_row_sums", "product_gain"]

Tensor = torch.Tensor
TIGHT = 1e-6
_AT_ONCE = 1 << 21
"""Entries of a product that stand in memory together."""
_MOST = 400
"""Steps after which the run ends in any case."""
_EVERY = 4
"""Steps of the run from one look at its Ritz pair to the next."""


@exactly()
def column_and_row_sums(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """|L R|_1 and |L R|_inf of [head, in, inner] and [head, inner, out], one number per head."""
    first = [_sums(one, other) for one, other in zip(left, right, strict=True)]
    columns, rows = zip(*first, strict=True)
    return torch.stack(columns), torch.stack(rows)


def _sums(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    widest = left.new_zeros(())
    rows = left.new_zeros(left.shape[0])
    for part in right.split(max(1, _AT_ONCE // left.shape[0]), 1):
        sizes = (left @ part).abs_()
        widest = torch.maximum(widest, sizes.sum(0).amax())
        rows += sizes.sum(1)
    return widest, rows.amax()


@exactly()
def product_gain(left: Tensor, right: Tensor, *, seed: int = 0) -> Tensor:
    """The largest singular value of L R for [in, inner] and [inner, out]."""

    def squared(x: Tensor) -> Tensor:
        return right.T @ (left.T @ (left @ (right @ x)))

    size = right.shape[1]
    most = min(size, _MOST)
    start = torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    basis = right.new_zeros(most + 1, size)
    basis[0] = (start / torch.linalg.vector_norm(start)).to(right)
    diagonal: list[float] = []
    beside: list[float] = []
    value = right.new_full((), float("nan"))
    for step in range(most):
        image = squared(basis[step])
        diagonal.append(float(basis[step] @ image))
        known = basis[: step + 1]
        for _ in range(2):  # once lets the loss of orthogonality grow from step to step
            image = image - known.T @ (known @ image)
        left_over = float(torch.linalg.vector_norm(image))
        if not math.isfinite(left_over):
            return right.new_full((), float("nan"))
        spent = left_over <= TIGHT * max(diagonal) or step + 1 == most
        if spent or step % _EVERY == 0:
            values, vectors = torch.linalg.eigh(_tridiagonal(diagonal, beside))
            value = values[-1].clamp_min(0)
            if left_over * abs(float(vectors[-1, -1])) <= TIGHT * float(value):
                break
        beside.append(left_over)
        basis[step + 1] = image / left_over
    return value.sqrt().to(right)


def _tridiagonal(diagonal: list[float], beside: list[float]) -> Tensor:
    matrix = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    if beside:
        off = torch.tensor(beside, dtype=torch.float64)
        matrix += torch.diag(off, 1) + torch.diag(off, -1)
    return matrix
