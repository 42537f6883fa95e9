"""Golub-Kahan-Lanczos: the leading singular vectors of A from a few products with M = A'A.

From a start block (rows; the first is always the vector 1) the Krylov space is built with full
reorthogonalisation, twice: once lets the loss grow from step to step. With V an orthonormal basis
and F the new rows outside it,

    M V' = V' T + F' B,   T = S diag(theta) S'

    Ritz vector        x = V's_1, M x = theta_1 x + F' B s_1 (the last block of s_1): its residual
    resolvent vector   z = V'(lambda - T)^-1 V 1, lambda = theta_1 (1 + eta): near (lambda - M)^-1 1

so that M x and M z cost no product with A. In exact arithmetic this is the bidiagonalisation of
Golub and Kahan (1965): the same space.

The start vector 1 cannot miss the largest singular value of a nonnegative matrix: its leading
right vector is nonnegative (Perron and Frobenius), so its product with 1 is at least its length.

A direction whose new part falls below `FREEZE` eps of the product (permutation, uniform,
previous-token heads: the space is invariant) is frozen as a zero row: it adds a zero to T, nothing
else.

What is handed back is one product further than the space: M x and M z + 1, which damps what the
space has not caught yet. `certificate` explains which z is best, and why it matters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch

from leadline.numerics.spectra.certificate import positive_vector

__all__ = ["TIGHT", "Gram", "Leading", "Space", "leading_vectors", "start_block"]

Tensor = torch.Tensor

TIGHT = 1e-5
"""Stop when the predicted bound on sigma^2 is this close, relatively: half of it on sigma."""

CLUSTER = 1e-2
"""Where the second Ritz value is nearer than this, others may hide near the first: then the bound
must be closer by the factor CLOSER, for the value is no better than the bound."""

CLOSER = 2.5

PROMISING = 1e-4
"""Above this residual of the first Ritz vector no bound was ever tight: it is not tried."""

RESIDUAL = 3e-3
"""Where a second vector is wanted: its residual, relative to its Ritz value, that is enough.

The error of the Ritz value is of the order of the square."""

BEYOND = 4
"""Residuals by which a Ritz value may be below its eigenvalue. Some eigenvalue is within one, but
where many lie close together it need not be the one that is meant: of singular values that fill an
interval (a permutation with some noise) the second was found more than one residual away, and one
just above the others can be missed by more than two."""

FREEZE = 8
"""In units of the rounding error: a new direction below this share of the product is noise."""

MOST = 96
"""Steps after which a run ends in any case."""


class Gram(Protocol):
    """Something that multiplies rows [matrix, row, n] by A'A of each matrix."""

    def gram_rows(self, x: Tensor) -> Tensor: ...

    def take(self, keep: Tensor) -> Gram:
        """The operator of the matrices with these numbers."""
        ...


@dataclass(frozen=True)
class Leading:
    """What a Krylov run found: per matrix the vectors and the products that were needed."""

    ritz: Tensor
    """[matrix, wanted, n], the largest first, not normalised."""
    positive: Tensor
    """[matrix, n], the vector that certifies."""
    iterations: Tensor
    """[matrix], int64: applications of M to the block."""
    error: Tensor
    """[matrix], float64: an estimate of how far the last Ritz value that was wanted may be below
    its eigenvalue; 0 where there are fewer."""


@dataclass(frozen=True)
class Space:
    """A Krylov space of every matrix: rows [V; F] [matrix, k + block, n] and the spectrum of T."""

    rows: Tensor
    values: Tensor
    """[matrix, k], ascending, float64."""
    vectors: Tensor
    """[matrix, k, k]: column j belongs to value j."""
    outside: Tensor
    """B [matrix, block, block]: M times the last rows of V is B F, plus what lies in V."""

    def residuals(self, which: int) -> Tensor:
        """[matrix]: |M x - theta x| of the Ritz vector `which`, counted from the largest, 1."""
        block = self.outside.shape[1]
        part = torch.bmm(self.vectors[:, -block:, -which, None].mT, self.outside)
        return torch.linalg.vector_norm(part, dim=(1, 2))

    def leading(self, wanted: int) -> Tensor:
        """M times the first Ritz vectors, as rows [matrix, wanted, n]; zero where there are fewer."""
        block = self.outside.shape[1]
        top = self.vectors[:, :, -wanted:].flip(-1).mT
        inside = top * self.values[:, -wanted:].flip(-1)[:, :, None]
        weights = torch.cat([inside, torch.bmm(top[:, :, -block:], self.outside)], 2)
        vectors = torch.bmm(weights.to(self.rows.dtype), self.rows)
        missing = wanted - vectors.shape[1]
        return torch.nn.functional.pad(vectors, (0, 0, 0, missing)) if missing else vectors

    def take(self, keep: Tensor) -> Space:
        """The spaces of the matrices with these numbers."""
        if len(keep) == len(self.values):
            return self
        # index_select copies whole rows; an index in brackets goes entry by entry.
        return Space(
            self.rows.index_select(0, keep),
            self.values.index_select(0, keep),
            self.vectors.index_select(0, keep),
            self.outside.index_select(0, keep),
        )


def start_block(n: int, rows: int, *, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[rows, n] orthonormal: first the vector 1, then fixed random directions."""
    block = torch.ones(n, rows, dtype=torch.float64)
    if rows > 1:
        generator = torch.Generator().manual_seed(n)
        block[:, 1:] = torch.randn(n, rows - 1, generator=generator, dtype=torch.float64)
        block = torch.linalg.qr(block).Q
        block[:, 0] = 1 / math.sqrt(n)  # the sign of a QR is not fixed
    else:
        block /= math.sqrt(n)
    return block.mT.to(dtype=dtype, device=device)


def leading_vectors(
    operator: Gram, start: Tensor, *, wanted: int = 1, most: int = MOST, spacing: float = 1.7
) -> Leading:
    """Run from `start` [matrix, block, n] until every matrix has its vectors, at most `most` steps.

    A matrix whose first product is not finite gets NaN vectors. The Ritz problem is solved at steps
    that grow by the factor `spacing`: large where a product is cheap beside it. Matrices that are
    done leave the batch.
    """
    count, block, n = start.shape
    most = max(1, min(most, -(-n // block)))
    ritz = start.new_zeros(count, wanted, n)
    positive = start.new_ones(count, n)
    iterations = torch.zeros(count, dtype=torch.int64, device=start.device)
    errors = torch.zeros(count, dtype=torch.float64, device=start.device)
    alive = torch.arange(count, device=start.device)
    before = torch.full((count,), torch.inf, dtype=torch.float64, device=start.device)
    run = _GrowingBasis.begin(start, min(most, 12))
    look = 1 if block > 2 else 5
    for step in range(1, most + 1):
        image = operator.gram_rows(run.last)
        if step == 1:
            image, unknown = _without_unknown(image)
            ritz[unknown] = torch.nan
        run.extend(image)
        if step < min(look, most):
            continue
        look = max(step + 1, math.ceil(spacing * step))
        space = run.space()
        residual = space.residuals(1) / space.values[:, -1].clamp_min(torch.finfo(start.dtype).tiny)
        frozen = (run.outside == 0).flatten(1).all(1) | (step == most)
        trial = (frozen | (residual <= PROMISING)).nonzero().flatten()
        if not len(trial):
            continue
        space = space.take(trial)
        vectors, slack = positive_vector(space, every=bool(frozen.any()))
        ended = _finished(space, slack, before[trial], wanted) | frozen[trial]
        before[trial] = slack
        if not bool(ended.any()):
            continue
        which = alive[trial[ended]]
        # A matrix that is not finite keeps its NaN.
        ritz[which] = space.leading(wanted)[ended] + 0 * ritz[which]
        positive[which], iterations[which] = vectors[ended], step
        if space.values.shape[1] >= wanted:
            errors[which] = _error(space, wanted)[ended]
        going = torch.ones_like(frozen)
        going[trial[ended]] = False
        keep = going.nonzero().flatten()
        if not len(keep):
            break
        operator, run = operator.take(keep), run.take(keep)
        alive, before = alive[keep], before[keep]
    return Leading(ritz, positive, iterations, errors)


class _GrowingBasis:
    """The growing basis of a batch, with room for some more rows."""

    def __init__(self, basis: Tensor, projected: Tensor, outside: Tensor, used: int) -> None:
        self.basis, self.projected, self.outside, self.used = basis, projected, outside, used

    @staticmethod
    def begin(start: Tensor, steps: int) -> _GrowingBasis:
        count, block, n = start.shape
        basis = start.new_empty(count, (steps + 1) * block, n)
        basis[:, :block] = start
        return _GrowingBasis(
            basis,
            start.new_zeros(count, steps * block, steps * block),
            start.new_zeros(count, block, block),
            block,
        )

    @property
    def last(self) -> Tensor:
        """The rows that M is applied to next [matrix, block, n]."""
        block = self.outside.shape[1]
        return self.basis[:, self.used - block : self.used]

    def extend(self, image: Tensor) -> None:
        """Take in M times the last rows."""
        k, block = self.used, image.shape[1]
        if k + block > self.basis.shape[1]:
            self._grow()
        fresh, products, self.outside = _new_rows(self.basis[:, :k], image)
        self.basis[:, k : k + block] = fresh
        self.projected[:, k - block : k, :k] = products
        self.used = k + block

    def space(self) -> Space:
        k = self.used - self.outside.shape[1]
        values, vectors = torch.linalg.eigh(self.projected[:, :k, :k].double())
        return Space(self.basis[:, : self.used], values, vectors, self.outside.double())

    def take(self, keep: Tensor) -> _GrowingBasis:
        """The runs of the matrices with these numbers."""
        # In place: the room of those that left is not given back and taken anew.
        basis = self.basis[: len(keep)]
        basis[:, : self.used] = self.basis[:, : self.used].index_select(0, keep)
        projected = self.projected.index_select(0, keep)
        return _GrowingBasis(basis, projected, self.outside.index_select(0, keep), self.used)

    def _grow(self) -> None:
        more = self.basis.shape[1]
        self.basis = torch.nn.functional.pad(self.basis, (0, 0, 0, more))
        self.projected = torch.nn.functional.pad(self.projected, (0, more, 0, more))


def _without_unknown(image: Tensor) -> tuple[Tensor, Tensor]:
    """Zero in the place of products that are not finite, and where they were."""
    unknown = ~torch.isfinite(image).flatten(1).all(1)
    return torch.where(unknown[:, None, None], 0, image), unknown


def _finished(space: Space, slack: Tensor, before: Tensor, wanted: int) -> Tensor:
    """Where the bound is tight and, if a second vector is wanted, its residual small."""
    second = space.values[:, -min(2, space.values.shape[1])]
    alone = space.values[:, -1] - second > CLUSTER * space.values[:, -1]
    tight = slack <= torch.where(alone, TIGHT, TIGHT / CLOSER)
    # A residual of the size of rounding and a bound that no longer falls: that is all there is.
    rounding = FREEZE * torch.finfo(space.rows.dtype).eps
    stalled = space.residuals(1) <= rounding * space.values[:, -1]
    tight = tight | (stalled & (slack > before / 2))
    if wanted == 1 or space.values.shape[1] == 1:
        return tight
    floor = 2 * torch.finfo(space.rows.dtype).eps * space.values[:, -1]
    enough = torch.maximum(RESIDUAL * space.values[:, -2], floor)
    return tight & (space.residuals(2) <= enough)


def _error(space: Space, which: int) -> Tensor:
    """How far the Ritz value `which`, counted from the largest, may be off, and the run's rounding."""
    rounding = FREEZE * torch.finfo(space.rows.dtype).eps * space.values[:, -1]
    return BEYOND * space.residuals(which) + rounding


def _new_rows(basis: Tensor, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What of `image` [matrix, block, n] lies outside the basis [matrix, k, n].

    As orthonormal rows F; the products of image and basis [matrix, block, k]; and B, with
    image = products basis + B F.
    """
    transposed = basis.mT
    products = torch.bmm(image, transposed)
    fresh = torch.baddbmm(image, products, basis, alpha=-1)
    if image.shape[1] == 1:
        fresh = torch.baddbmm(fresh, torch.bmm(fresh, transposed), basis, alpha=-1)
        length = torch.linalg.vector_norm(fresh, dim=-1, keepdim=True)
        inside = torch.linalg.vector_norm(products, dim=-1, keepdim=True)
        alive = length > inside * (FREEZE * torch.finfo(basis.dtype).eps)
        scale = alive / length.clamp_min(torch.finfo(basis.dtype).tiny)
        return fresh * scale, products, length * alive
    size = torch.linalg.vector_norm(image, dim=-1).amax(-1, keepdim=True)
    outside = fresh
    fresh = _orthonormal(fresh, size * (FREEZE * torch.finfo(basis.dtype).eps))
    # Short directions carry the rounding of long ones: once more, now that all have length one.
    fresh = torch.baddbmm(fresh, torch.bmm(fresh, transposed), basis, alpha=-1)
    fresh = _orthonormal(fresh, torch.full_like(size, 0.5))
    return fresh, products, torch.bmm(outside, fresh.mT)


def _orthonormal(rows: Tensor, least: Tensor) -> Tensor:
    """Rows [matrix, block, n] that span the same; directions shorter than `least` become zero."""
    raised = rows.double()
    values, vectors = torch.linalg.eigh(torch.bmm(raised, raised.mT))
    lengths = values.clamp_min(0).sqrt()
    scale = torch.where(lengths > least, 1 / lengths, 0)
    return torch.bmm((vectors * scale[:, None]).mT, raised).to(rows.dtype)
