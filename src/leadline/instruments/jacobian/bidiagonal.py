"""The largest and the smallest singular values of a linear map, by its products alone.

Block Golub-Kahan bidiagonalisation: bases V and U grow by p vectors a step,

    J V_j = U_1..j H_1..j,j         J' U_j = V_1..j (H_j,1..j)' + V_(j+1) B_j

every new block made orthogonal to the one before it, and then to all. All coefficients are kept,
not only the two diagonals, so that H = U' J V is the projection of J also where rounding bends the
recurrence. The singular values theta of H approach those of J; with z the last p entries of a left
singular vector of H, the residual of that triplet is r = |B_j z|, and J v = theta u holds exactly.

What is known about the error of theta_i (Golub and Van Loan 2013, sections 8.1 and 10.4):
some singular value lies within r_i, and once the j largest have parted from the rest

    sigma_i^2 - theta_i^2 <= (theta_1^2 r_1^2 + ... + theta_j^2 r_j^2) / (theta_i^2 - sigma_(j+1)^2)

for any j >= i: theta_i^2 are Ritz values of J'J with the residuals theta_i r_i, and what J'J does
outside of the j vectors is at most sigma_(j+1)^2. Divided by 2 theta_i it is about sigma_i. `errors` is the smaller of the two, the best j taken and theta_(j+1) + r_(j+1) for the unknown
sigma_(j+1), plus rounding. Both are about values that have come out of the crowd: theta_i lies
above the median theta by more than r_i / `OUT`. Before that, a value far above may be hidden: a
random start of m directions has m / N of it and shows sqrt(m / N) of its distance as a residual.
So r_i sqrt(N / m) is the estimate there. It is an estimate and no proof in either case: a start
that is orthogonal to a singular vector would never see it. The start is random, and has as many
directions as values are wanted: from fewer, one of several equal values would not be seen to be
several; with more, there are more products for every power of J'J.

Smallest values come from the same bases. theta is then, but for rounding, never below the truth: it
is |J v| for a unit vector v. They converge slowly, and the error is the residual alone. Where N is
at most `SMALL_ENOUGH` the matrix is formed instead and its SVD taken in float64.

Rounding is counted in eps of the largest number in a product: sigma_1, and for J - c I that of J.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from leadline.errors import InputError, ProbeError
from leadline.numerics.linear.frames import orthonormal_rows
from leadline.numerics.linear.linear_maps import LinearMap, Shifted, dense

__all__ = ["ROUNDING", "SMALL_ENOUGH", "Singular", "largest", "smallest"]

Tensor = torch.Tensor
Tell = Callable[[int], None]
"""Called with the number of products so far."""

ROUNDING = 16.0
"""Rounding of a product with J, in eps of the largest singular value."""
OUT = 0.1
"""A value is out of the crowd when its residual is at most this share of its distance to it."""
SMALL_ENOUGH = 1024
"""Up to so many rows the matrix is formed instead of approached by its products."""
SPARE = 2
"""Directions of a block beyond the smallest values that are wanted, which part slowly. The largest
need none: 4 values of two Transformer blocks at 32 x 128 took 96 to 104 products in blocks of 4,
100 to 110 of 5 and 120 to 132 of 6, at a tolerance of 1e-5."""
ROOM = 32
"""Directions for which a basis has room at first; it doubles when they are used up."""
FAINTEST = 1.0
"""In eps of a product: what is left of it outside the basis below this is no direction."""
MOST = 512
"""Directions at which the search ends, converged or not."""


@dataclass(frozen=True)
class Singular:
    """Singular values per example, their estimated errors, and the vectors J v = value u."""

    values: Tensor
    errors: Tensor
    left: Tensor
    right: Tensor
    products: int
    converged: Tensor


def largest(
    linear_map: LinearMap,
    k: int = 4,
    *,
    tolerance: float = 1e-6,
    block: int | None = None,
    seed: int = 0,
    most: int | None = None,
    tell: Tell | None = None,
) -> Singular:
    """The k largest singular values of every example, largest first.

    The search ends when every error is below `tolerance` times its value, or below what rounding
    leaves, or after `most` directions.
    """
    size = _check_count(linear_map, k)
    basis = _Bases(linear_map, min(block or k, size), min(most or MOST, size), seed, tell)
    while True:
        u, theta, v, residuals = basis.step()
        values = theta[:, :k]
        errors = _errors(theta, residuals, size)[:, :k]
        floor = _floor(linear_map, theta[:, :1])
        fine = (errors <= torch.maximum(tolerance * values, floor)).all(1)
        if basis.full and size <= SMALL_ENOUGH and most is None and not bool(fine.all()):
            # No room for one more whole block, and directions are left that were never seen.
            return _by_dense_svd(linear_map, k, largest_first=True)
        if bool(fine.all()) or basis.full:
            return Singular(
                values=values,
                errors=errors + floor,
                left=basis.left(u[:, :, :k]),
                right=basis.right(v[:, :, :k]),
                products=basis.products,
                converged=fine,
            )


def smallest(
    linear_map: LinearMap,
    k: int = 1,
    *,
    tolerance: float = 1e-4,
    seed: int = 0,
    most: int | None = None,
    tell: Tell | None = None,
) -> Singular:
    """The k smallest singular values of every example, smallest first, from above.

    `tolerance` is a share of the largest singular value: a small one is known no better than the
    products are.
    """
    size = _check_count(linear_map, k)
    if size <= SMALL_ENOUGH:
        return _by_dense_svd(linear_map, k)
    basis = _Bases(linear_map, min(k + SPARE, size), min(most or MOST, size), seed, tell)
    while True:
        u, theta, v, residuals = basis.step()
        values = theta.flip(1)[:, :k]
        errors = _hidden(theta, residuals, size).flip(1)[:, :k]
        fine = (errors <= tolerance * theta[:, :1]).all(1)
        if bool(fine.all()) or basis.full:
            floor = _floor(linear_map, theta[:, :1])
            return Singular(
                values=values,
                errors=errors + floor,
                left=basis.left(u.flip(2)[:, :, :k]),
                right=basis.right(v.flip(2)[:, :, :k]),
                products=basis.products,
                converged=fine,
            )


def _check_count(linear_map: LinearMap, k: int) -> int:
    size = linear_map.shape[1] * linear_map.shape[2]
    if type(k) is not int or not 1 <= k <= size:
        raise InputError(
            f"{k!r} singular values were asked for; a map of {size} features has 1 to {size}."
        )
    return size


def _floor(linear_map: LinearMap, largest_value: Tensor) -> Tensor:
    """What rounding leaves of any value."""
    subtracted = abs(linear_map.by) if isinstance(linear_map, Shifted) else 0.0
    return ROUNDING * torch.finfo(linear_map.dtype).eps * (largest_value + subtracted)


def _errors(theta: Tensor, residuals: Tensor, size: int) -> Tensor:
    """Estimated errors of the largest values, without rounding: the module gives the formula."""
    squares = theta.square()
    together = (squares * residuals.square()).cumsum(1)
    following = torch.cat([theta[:, 1:] + residuals[:, 1:], torch.zeros_like(theta[:, :1])], 1)
    gap = squares.unsqueeze(2) - following.square().unsqueeze(1)
    count = theta.shape[1]
    later = torch.ones(count, count, dtype=torch.bool, device=theta.device).triu()
    # Nothing is known of what comes after the last of the directions.
    later[:, -1] = False
    below = 2.0 * theta.unsqueeze(2) * gap
    quadratic = torch.where(
        later & (gap > 0), together.unsqueeze(1) / below.clamp(min=1e-300), torch.inf
    )
    hidden = _hidden(theta, residuals, size)
    return torch.where(hidden > residuals, hidden, torch.minimum(residuals, quadratic.amin(2)))


def _hidden(theta: Tensor, residuals: Tensor, size: int) -> Tensor:
    """The residual of values out of the crowd; of others, what may be hidden behind it."""
    crowd = theta.median(1, keepdim=True).values
    out = residuals <= OUT * (theta - crowd).abs()
    return torch.where(out, residuals, residuals * (size / theta.shape[1]) ** 0.5)


class _Bases:
    """The two bases, rows of [example, direction, N], and the projection H in float64."""

    def __init__(
        self, linear_map: LinearMap, block: int, most: int, seed: int, tell: Tell | None
    ) -> None:
        self.map = linear_map
        self.block = block
        self.most = most
        self.tell = tell
        self.products = 0
        self.generator = torch.Generator().manual_seed(seed)
        examples, tokens, width = linear_map.shape
        self.rows = (examples, tokens * width)
        self.count = 0
        empty = torch.zeros(examples, 0, tokens * width, dtype=linear_map.dtype)
        self._v = self._u = empty.to(linear_map.device)
        self._h = torch.zeros(examples, 0, 0, dtype=torch.float64, device=linear_map.device)
        self._next, _ = self._against(self._v, self._drawn(block))

    @property
    def full(self) -> bool:
        """No room for one more block."""
        return self.count + self.block > self.most

    def step(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """One more block on both sides: u, theta, v of H, and the residual of every triplet."""
        before, self.count = self.count, self.count + self.block
        self._v = _with(self._v, before, self._next)
        moved = self._product(self._next, adjoint=False)
        fresh, coefficients = self._against(self._u[:, :before], moved)
        self._u = _with(self._u, before, fresh)
        grown = self._h.new_zeros(self.rows[0], self.count, self.count)
        grown[:, :before, :before] = self._h
        grown[:, :, before:] = coefficients
        self._h = grown
        u, theta, vt = torch.linalg.svd(self._h)
        pulled = self._product(fresh, adjoint=True)
        self._next, back = self._against(self._v[:, : self.count], pulled)
        beyond = back[:, self.count :]
        residuals = torch.linalg.vector_norm(beyond @ u[:, before:, :], dim=1)
        return u, theta, vt.mT, residuals

    def left(self, u: Tensor) -> Tensor:
        """Left singular vectors [k, example, token, width] from those of H."""
        return self._combined(self._u, u)

    def right(self, v: Tensor) -> Tensor:
        """Right singular vectors."""
        return self._combined(self._v, v)

    def _combined(self, basis: Tensor, weights: Tensor) -> Tensor:
        vectors = weights.to(basis.dtype).mT @ basis[:, : self.count]
        return vectors.transpose(0, 1).reshape(-1, *self.map.shape)

    def _product(self, rows: Tensor, *, adjoint: bool) -> Tensor:
        vectors = rows.transpose(0, 1).reshape(-1, *self.map.shape)
        products = self.map.adjoint(vectors) if adjoint else self.map.forward(vectors)
        self.products += self.block
        if self.tell is not None:
            self.tell(self.products)
        return products.reshape(self.block, *self.rows).transpose(0, 1)

    def _against(self, basis: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Rows as orthonormal ones outside the basis, and coefficients of both, in float64.

        rows_j = sum_i [basis, new]_i c_ij. A direction that is not there (the map has come to an
        end, or two directions are one) is replaced by a random one with a coefficient of zero.
        """
        inside = self._h.new_zeros(self.rows[0], basis.shape[1], rows.shape[1])
        upper = torch.eye(rows.shape[1], dtype=torch.float64, device=rows.device)
        # All of a product but rounding lies in the latest block and outside, so that the first of
        # the two passes needs no other block.
        for part in (basis[:, -self.block :], basis):
            shares = rows @ part.mT
            rows, r = orthonormal_rows(torch.baddbmm(rows, shares, part, alpha=-1.0))
            inside[:, inside.shape[1] - part.shape[1] :] += shares.mT.double() @ upper
            upper = r @ upper
        coefficients = torch.cat([inside, upper], 1)
        # The columns are as long as the rows were.
        scale = torch.linalg.vector_norm(coefficients, dim=1).unsqueeze(2)
        faintest = FAINTEST * torch.finfo(self.map.dtype).eps * scale
        present = upper.diagonal(dim1=-2, dim2=-1).unsqueeze(2) > faintest
        if bool(present.all()):  # false too for what is not a number
            return rows, coefficients
        self._refuse_not_finite(coefficients)
        lost = ~present
        return self._replaced(basis, rows, lost), torch.cat([inside, upper.where(present, 0.0)], 1)

    def _refuse_not_finite(self, coefficients: Tensor) -> None:
        if not bool(torch.isfinite(coefficients).all()):
            raise ProbeError(
                "A product with the Jacobian is not finite: it leaves the range of "
                f"{str(self.map.dtype).removeprefix('torch.')}; measure fewer layers at once, or "
                "the model in float64."
            )

    def _replaced(self, basis: Tensor, rows: Tensor, lost: Tensor) -> Tensor:
        """Random directions outside the basis and the other rows in the place of the lost ones."""
        rows = torch.where(lost, self._drawn(rows.shape[1]), rows)
        for _ in range(3):
            rows = rows - (rows @ basis.mT) @ basis
            # The lost ones last in the order, so that the others stay what they are.
            order = torch.argsort(lost[:, :, 0].to(torch.int8), dim=1, stable=True).unsqueeze(2)
            sorted_rows = torch.take_along_dim(rows, order, 1)
            spread, _ = orthonormal_rows(sorted_rows)
            rows = torch.empty_like(rows).scatter_(1, order.expand_as(rows), spread)
        return rows

    def _drawn(self, count: int) -> Tensor:
        drawn = torch.randn(self.rows[0], count, self.rows[1], generator=self.generator)
        return drawn.to(self.map.device, self.map.dtype)


def _with(basis: Tensor, count: int, rows: Tensor) -> Tensor:
    """The basis with rows behind its first `count`, in a larger one where there is no room."""
    end = count + rows.shape[1]
    if end > basis.shape[1]:
        room = max(ROOM, 2 * count, end)
        larger = basis.new_empty(basis.shape[0], room, basis.shape[2])
        larger[:, :count] = basis[:, :count]
        basis = larger
    basis[:, count:end] = rows
    return basis


def _by_dense_svd(linear_map: LinearMap, k: int, *, largest_first: bool = False) -> Singular:
    matrix = dense(linear_map).double()
    u, sigma, vt = torch.linalg.svd(matrix)
    shape = (k, *linear_map.shape)

    def vectors(columns: Tensor) -> Tensor:
        ordered = columns if largest_first else columns.flip(2)
        return ordered[:, :, :k].permute(2, 0, 1).reshape(shape).to(linear_map.dtype)

    values = (sigma if largest_first else sigma.flip(1))[:, :k]
    rounding = _floor(linear_map, sigma[:, :1])
    return Singular(
        values=values,
        errors=rounding.expand_as(values),
        left=vectors(u),
        right=vectors(vt.mT),
        products=matrix.shape[1],
        converged=torch.ones(matrix.shape[0], dtype=torch.bool, device=matrix.device),
    )
