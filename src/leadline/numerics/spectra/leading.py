"""Which way the leading singular values of a batch are found, by size and sign.

    the smaller side at most SMALL    powers of A'A, all matrices together    `squaring`
    below LARGE                       Krylov, all matrices together           `batch_lanczos`
    from LARGE on                     Krylov, one matrix at a time            `lanczos`
    a negative entry, or a largest    float64 eigensolver with the interval of its backward error,
    entry outside MODERATE            at any size: slow, but right            `eigenvalues`

Two values are found by the eigensolver up to twice SMALL, and from there on by a Krylov space with
one more start vector (`krylov`): a space that starts at 1 alone cannot see a value that occurs twice.
The lower end of the second is the second Ritz value (Cauchy interlacing) and proved. Proved upper
ends are sigma_1's and sqrt(|A|_F^2 - lower_1^2); where many singular values are large both say
nothing, and the upper end is an estimate: theta_2 and a few residuals (`krylov.BEYOND`).

Attention that is given by its rows is formed while it has at most WHOLE weights, in float64;
beyond that it stays `matrix_free`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from leadline.numerics.denormals import flushed
from leadline.numerics.spectra.attention_rows import AttentionRows
from leadline.numerics.spectra.batch_lanczos import batch_lanczos
from leadline.numerics.spectra.certificate import batched_ends, ends, margin, quotient
from leadline.numerics.spectra.eigenvalues import by_eigenvalues
from leadline.numerics.spectra.krylov import Leading, leading_vectors, start_block
from leadline.numerics.spectra.lanczos import lanczos
from leadline.numerics.spectra.matrix_free import COLUMNS, MatrixFree
from leadline.numerics.spectra.squaring import squared_norm
from leadline.numerics.spectra.stored import Chunked, MatrixBatch, Several

__all__ = [
    "LARGE",
    "MODERATE",
    "SMALL",
    "TOGETHER",
    "WHOLE",
    "Solved",
    "is_large",
    "solve",
    "solve_blocks",
    "solve_rows",
]

Tensor = torch.Tensor

SMALL = 32
"""Up to this side matrices are squared (and up to twice this side eigenvalues give a pair)."""

LARGE = 384
"""From this geometric mean of the sides on matrices are taken one at a time."""

TOGETHER = 1 << 22
"""Entries of the matrices that are worked on together."""

SHARED = 16
"""Large matrices whose pairs are found together."""

WHOLE = 1 << 21
"""Weights of attention up to which the matrix is formed."""

MODERATE = (1e-6, 1e6)
"""Largest entries of matrices whose squares and fourth powers float32 holds, with room for sums."""


@dataclass(frozen=True)
class Solved:
    """value, lower, upper [matrix, wanted]; iterations [matrix]."""

    value: Tensor
    lower: Tensor
    upper: Tensor
    iterations: Tensor

    @staticmethod
    def unknown(count: int, wanted: int, device: torch.device) -> Solved:
        value = torch.full((count, wanted), torch.nan, dtype=torch.float64, device=device)
        iterations = torch.zeros(count, dtype=torch.int64, device=device)
        return Solved(value, value.clone(), value.clone(), iterations)

    @staticmethod
    def direct(ends_of_values: tuple[Tensor, Tensor, Tensor]) -> Solved:
        value, lower, upper = ends_of_values
        iterations = torch.zeros(len(value), dtype=torch.int64, device=value.device)
        return Solved(value, lower, upper, iterations)

    @staticmethod
    def join(parts: list[Solved]) -> Solved:
        if len(parts) == 1:
            return parts[0]
        return Solved(
            torch.cat([part.value for part in parts]),
            torch.cat([part.lower for part in parts]),
            torch.cat([part.upper for part in parts]),
            torch.cat([part.iterations for part in parts]),
        )

    def put(self, where: Tensor | slice, part: Solved) -> None:
        self.value[where] = part.value
        self.lower[where] = part.lower
        self.upper[where] = part.upper
        self.iterations[where] = part.iterations


def solve(matrices: Tensor, *, wanted: int) -> Solved:
    """One or two leading singular values of floating point matrices [matrix, m, n], m, n > 0."""
    count, m, n = matrices.shape
    if not count:
        return Solved.unknown(0, wanted, matrices.device)
    large = is_large(m, n, wanted=wanted)
    size = max(1, TOGETHER // (m * n))
    if large:
        # Pairs of several matrices share the small algebra of their Krylov spaces.
        size = 1 if wanted == 1 else SHARED
    way = _solve_together if not large else _solve_large if wanted == 1 else _solve_pairs
    dtype = _working(matrices.dtype)
    return Solved.join([way(part.to(dtype), wanted) for part in matrices.split(size)])


def is_large(m: int, n: int, *, wanted: int) -> bool:
    """Whether a matrix is multiplied by itself instead of with others."""
    return math.sqrt(m * n) >= LARGE and min(m, n) > SMALL * wanted


def _working(dtype: torch.dtype) -> torch.dtype:
    """Float32 for short formats, unless torch is set to multiply it in a shorter one."""
    exact = torch.get_float32_matmul_precision() == "highest"
    return torch.float32 if exact and dtype != torch.float64 else torch.float64


def _solve_large(matrices: Tensor, wanted: int) -> Solved:
    """One large matrix [1, m, n]."""
    with flushed():
        operator = Chunked(matrices[0])
    if not _moderate(operator):
        return _solve_unusual(matrices, wanted)
    sides = matrices.shape[1:]
    if matrices.device.type != "cpu":
        return _krylov(Several([operator]), 1, sides, wanted=wanted, like=matrices)
    with flushed():
        ritz, positive, steps = lanczos(operator)
        vector, z = ritz.double().abs_(), positive.double()
        certified = operator.certify(vector[None], z)
    products, image = certified.products[0, 0], certified.image[0]
    value = math.sqrt(float(torch.dot(products, products)) / float(torch.dot(vector, vector)))
    # |M z| / |A z| is a lower bound, too, and |A z|^2 = z'M z; four sums of rounding.
    other = math.sqrt(float(torch.dot(image, image)) / float(torch.dot(z, image)))
    value = max(value, other * (1 - 4 * margin(*sides)))
    lower, upper = ends(value, float(quotient(image, z)), margin(*sides))
    interval = torch.tensor([[value, lower, upper]], dtype=torch.float64)
    return Solved(interval[:, :1], interval[:, 1:2], interval[:, 2:], torch.tensor([steps]))


def _solve_pairs(matrices: Tensor, wanted: int) -> Solved:
    """A few large matrices [matrix, m, n]."""
    return solve_blocks([[matrix] for matrix in matrices], matrices.shape[2], wanted=wanted)


def solve_blocks(matrices: Sequence[Sequence[Tensor]], columns: int, *, wanted: int) -> Solved:
    """Large matrices, each given as blocks of rows; the columns that a block lacks are zero.

    Each is multiplied by itself; what is small in a Krylov run is done for all together.
    """
    with flushed():
        operators = [
            Chunked(blocks if len(blocks) > 1 else blocks[0], columns) for blocks in matrices
        ]
    like = matrices[0][0]
    sides = operators[0].shape
    solved = Solved.unknown(len(operators), wanted, like.device)
    ordinary = [number for number, operator in enumerate(operators) if _moderate(operator)]
    for first in range(0, len(ordinary), SHARED):
        these = ordinary[first : first + SHARED]
        chosen = Several([operators[number] for number in these])
        part = _krylov(chosen, len(these), sides, wanted=wanted, like=like)
        solved.put(torch.tensor(these, device=like.device), part)
    for number in sorted(set(range(len(operators))) - set(ordinary)):
        matrix = torch.zeros(1, *sides, dtype=like.dtype, device=like.device)
        first = 0
        for block in matrices[number]:
            matrix[0, first : first + len(block), : block.shape[1]] = block
            first += len(block)
        solved.put(slice(number, number + 1), _solve_unusual(matrix, wanted))
    return solved


def _moderate(operator: Chunked) -> bool:
    """Nonnegative and of moderate size; False for NaN.

    M 1 is at least the square of the largest entry, and at most m n times that.
    """
    m, n = operator.shape
    least = m * n * MODERATE[0] ** 2
    return operator.lowest >= 0 and least <= operator.reach <= MODERATE[1] ** 2


def _solve_together(matrices: Tensor, wanted: int) -> Solved:
    """A batch [matrix, m, n] that fits the cache."""
    lowest, highest = matrices.amin((1, 2)), matrices.amax((1, 2))
    ordinary = _ordinary(lowest, highest)
    if bool(ordinary.all()):
        return _solve_ordinary(matrices, wanted)
    solved = Solved.unknown(len(matrices), wanted, matrices.device)
    if bool(ordinary.any()):
        solved.put(ordinary, _solve_ordinary(matrices[ordinary], wanted))
    rest = ~ordinary
    solved.put(rest, _solve_unusual(matrices[rest], wanted))
    return solved


def _ordinary(lowest: Tensor, highest: Tensor) -> Tensor:
    """Nonnegative and of moderate size; False for NaN."""
    return (lowest >= 0) & (highest >= MODERATE[0]) & (highest <= MODERATE[1])


def _solve_ordinary(matrices: Tensor, wanted: int) -> Solved:
    count, m, n = matrices.shape
    if wanted == 1 and min(m, n) <= SMALL:
        with flushed():
            value, lower, upper = squared_norm(matrices)
        return Solved.direct((value[:, None], lower[:, None], upper[:, None]))
    if min(m, n) <= SMALL * wanted:
        return Solved.direct(by_eigenvalues(matrices, count=wanted))
    operator = MatrixBatch(matrices)
    if wanted > 1:
        return _krylov(operator, count, (m, n), wanted=wanted, like=matrices)
    with flushed():
        return _certified_norm(operator, batch_lanczos(matrices), margin(m, n))


def _solve_unusual(matrices: Tensor, wanted: int) -> Solved:
    """Not finite: unknown. Negative entries, very large or small ones, zero: eigenvalues."""
    solved = Solved.unknown(len(matrices), wanted, matrices.device)
    finite = torch.isfinite(matrices).flatten(1).all(1)
    if bool(finite.any()):
        solved.put(finite, Solved.direct(by_eigenvalues(matrices[finite], count=wanted)))
    return solved


def _krylov(
    operator: MatrixBatch | Several | MatrixFree,
    count: int,
    sides: tuple[int, ...] | torch.Size,
    *,
    wanted: int,
    like: Tensor,
    columns: int | None = None,
) -> Solved:
    m, n = sides
    start = start_block(n, columns or wanted, dtype=like.dtype, device=like.device)
    spacing = 1.7 if isinstance(operator, MatrixBatch) else 1.2
    with flushed():
        leading = leading_vectors(
            operator, start.expand(count, -1, -1), wanted=wanted, spacing=spacing
        )
        if wanted > 1:
            return _certified_pair(operator, leading, margin(m, n))
        return _certified_norm(operator, leading, margin(m, n))


def _certified_norm(
    operator: MatrixBatch | Several | MatrixFree, leading: Leading, slack: float
) -> Solved:
    vectors = leading.ritz.double().abs()
    certified = operator.certify(vectors, leading.positive)
    length = vectors[:, 0].square().sum(-1).sqrt()
    value = certified.products[:, 0].square().sum(-1).sqrt()
    # A zero vector: M 1 = 0, so that the matrix is zero.
    value = torch.where(length == 0, 0, value / length)
    bound = quotient(certified.image, leading.positive.double())
    lower, upper = batched_ends(value, bound, slack)
    return Solved(value[:, None], lower[:, None], upper[:, None], leading.iterations)


def _certified_pair(
    operator: MatrixBatch | Several | MatrixFree, leading: Leading, slack: float
) -> Solved:
    vectors = _orthonormal(leading.ritz.double())
    certified = operator.certify(vectors, leading.positive)
    bound = quotient(certified.image, leading.positive.double())
    projected = torch.bmm(certified.products, certified.products.mT)
    known = torch.isfinite(projected).flatten(1).all(1)
    squares = torch.linalg.eigvalsh(torch.where(known[:, None, None], projected, 0)).flip(-1)
    squares = torch.where(known[:, None], squares, torch.nan).clamp_min(0)
    value = squares.sqrt()
    lower, upper = batched_ends(value[:, 0], bound, slack)
    # The products are right to the margin of sigma_1, and so is the second eigenvalue.
    second_lower = (squares[:, 1] - 4 * slack * squares[:, 0]).clamp_min(0).sqrt()
    rest = certified.squares * (1 + 2 * slack) - lower.square()
    second_upper = torch.minimum(rest.clamp_min(0).sqrt(), upper)
    # The vectors are a product ahead of the space, which does not lower a Ritz value.
    near = (squares[:, 1] + leading.error).sqrt() * (1 + slack)
    second_upper = torch.minimum(second_upper, near)
    second_upper = torch.maximum(second_upper, value[:, 1])
    return Solved(
        value,
        torch.stack([lower, second_lower], 1),
        torch.stack([upper, second_upper], 1),
        leading.iterations,
    )


def _orthonormal(rows: Tensor) -> Tensor:
    """Two rows [matrix, 2, n], orthonormal in float64; a zero row stays zero."""
    first, second = _unit(rows[:, 0]), rows[:, 1]
    for _ in range(2):
        second = _unit(second - (second * first).sum(-1, keepdim=True) * first)
    return torch.stack([first, second], 1)


def _unit(vectors: Tensor) -> Tensor:
    length = vectors.square().sum(-1, keepdim=True).sqrt()
    return torch.where(length == 0, 0, vectors / length)


def solve_rows(rows: AttentionRows, *, wanted: int) -> Solved:
    """One or two leading singular values of each head of attention that is given by its rows."""
    heads, m, n = rows.shape
    solved = Solved.unknown(heads, wanted, rows.query.device)
    slack = rows.rounding()
    if heads * m * n <= WHOLE:
        solved.put(slice(None), solve(rows.dense(dtype=torch.float64), wanted=wanted))
    else:
        for number in range(heads):
            one = rows.head(number)
            if m * n <= WHOLE or min(m, n) <= SMALL:
                part = solve(one.dense(dtype=torch.float64), wanted=wanted)
            else:
                like = torch.empty(0, dtype=_working(rows.query.dtype), device=rows.query.device)
                part = _krylov(
                    MatrixFree(one), 1, (m, n), wanted=wanted, like=like, columns=COLUMNS
                )
            solved.put(slice(number, number + 1), part)
    # Rows of a softmax sum to at most one, so that no norm is above sqrt(m), whatever was rounded.
    solved.lower.mul_((1 - slack[:, None]).clamp_min(0))
    solved.upper.mul_(1 + slack[:, None]).clamp_(max=math.sqrt(m))
    return solved
