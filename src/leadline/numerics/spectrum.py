"""The leading singular values of attention matrices, each with an interval that contains it.

`spectral_norm` chooses by size and sign:

    the smaller side at most SMALL    powers of A'A, all matrices together    `squaring`
    below LARGE                       Krylov, all matrices together           `krylov`, `certificate`
    from LARGE on                     Krylov, one matrix at a time
    a negative entry, or a largest    float64 eigensolver with the interval of its backward error,
    entry outside 1e-8 to 1e8        at any size: slow, but right            `eigenvalues`

`value` is a float64 Rayleigh quotient, so a lower bound up to rounding; `lower` and `upper` contain
the true value (for half precision and float32 inputs: that of the numbers as they are stored).
A matrix with an entry that is not finite has NaN in all three, alone. Where the interval is wider
than LOOSE of the value, `loose` says so.

The second singular value comes from the same Krylov space with one more start vector, because a
space that starts at 1 alone cannot see a value that occurs twice. Its lower end is the second Ritz
value (Cauchy interlacing), its upper end the smaller of sigma_1's and
sqrt(|A|_F^2 - lower_1^2): true, but far above the value for a matrix with many large ones.

`attention_spectral_norm` takes queries and keys and never holds more than WHOLE weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from leadline.errors import InputError
from leadline.numerics.attention_rows import AttentionRows
from leadline.numerics.certificate import batched_ends, ends, margin, quotient
from leadline.numerics.denormals import flushed
from leadline.numerics.eigenvalues import by_eigenvalues, by_svd
from leadline.numerics.krylov import Leading, leading_vectors, start_block
from leadline.numerics.lanczos import lanczos
from leadline.numerics.matrix_free import COLUMNS, MatrixFree
from leadline.numerics.squaring import squared_norm
from leadline.numerics.stored import Certified, Chunked, Several, Stacked

__all__ = [
    "LOOSE",
    "SpectralNorm",
    "attention_leading_pair",
    "attention_spectral_norm",
    "leading_pair",
    "rows_leading_pair",
    "rows_spectral_norm",
    "second_singular_value",
    "singular_values",
    "spectral_norm",
]

Tensor = torch.Tensor

LOOSE = 1e-2
"""An interval wider than this share of the value is called loose."""

SMALL = 32
"""Up to this side matrices are squared (and up to twice this side eigenvalues give a pair)."""

LARGE = 384
"""From this geometric mean of the sides on matrices are taken one at a time."""

TOGETHER = 1 << 22
"""Entries of the matrices that are worked on together."""

WHOLE = 1 << 21
"""Weights of attention that are held at a time: up to here the matrix fits, beyond it is blocks."""

MODERATE = (1e-8, 1e8)
"""Largest entries whose squares and fourth powers float32 holds."""


@dataclass(frozen=True)
class SpectralNorm:
    """A singular value per matrix and the interval that contains it, float64."""

    value: Tensor
    lower: Tensor
    upper: Tensor
    iterations: Tensor
    """Products with A'A that were needed, int64; 0 for a direct method."""

    @property
    def width(self) -> Tensor:
        """(upper - lower) / value; 0 for a value that is exactly zero."""
        gap = self.upper - self.lower
        return torch.where(gap == 0, 0, gap / self.value)

    @property
    def loose(self) -> Tensor:
        """Where the interval is wider than LOOSE of the value."""
        return self.width > LOOSE


@torch.no_grad()
def spectral_norm(matrices: Tensor) -> SpectralNorm:
    """The largest singular value of each matrix of [..., m, n]."""
    return _shaped(_solve(_flat(matrices), wanted=1), matrices)[0]


@torch.no_grad()
def leading_pair(matrices: Tensor) -> tuple[SpectralNorm, SpectralNorm]:
    """The largest and the second largest singular value of each matrix of [..., m, n]."""
    first, second = _shaped(_solve(_flat(matrices), wanted=2), matrices)
    return first, second


def second_singular_value(matrices: Tensor) -> SpectralNorm:
    """The second largest singular value of each matrix; 0 where there is only one."""
    return leading_pair(matrices)[1]


@torch.no_grad()
def singular_values(matrices: Tensor, *, count: int | None = None) -> Tensor:
    """[..., min(m, n)] or the first `count`: float64, descending, by a float64 SVD."""
    flat = _flat(matrices)
    finite = torch.isfinite(flat).flatten(1).all(1)
    values = by_svd(torch.where(finite[:, None, None], flat, 0))
    values = torch.where(finite[:, None], values, torch.nan)
    if count is not None:
        if not 1 <= count <= values.shape[1]:
            raise InputError(
                f"{count} singular values were asked for; a matrix of shape "
                f"{tuple(matrices.shape[-2:])} has {values.shape[1]}."
            )
        values = values[:, :count]
    return values.reshape(*matrices.shape[:-2], values.shape[1])


@torch.no_grad()
def attention_spectral_norm(
    query: Tensor,
    key: Tensor,
    *,
    causal: bool = False,
    scaling: float | None = None,
    mask: Tensor | None = None,
) -> SpectralNorm:
    """The spectral norm of softmax(scaling q k' + mask), without forming it.

    Query [..., m, d], key [..., n, d]. Leading shapes broadcast; dimension -3 counts heads, of
    which the key may have fewer (groups of neighbouring query heads share one). `scaling` is
    1 / sqrt(d) unless given; `mask` is boolean (True: may look) or added to the logits, and
    broadcasts to [..., m, n]. A causal query i sees the keys up to i + n - m.
    """
    return _attention(query, key, 1, causal=causal, scaling=scaling, mask=mask)[0]


@torch.no_grad()
def attention_leading_pair(
    query: Tensor,
    key: Tensor,
    *,
    causal: bool = False,
    scaling: float | None = None,
    mask: Tensor | None = None,
) -> tuple[SpectralNorm, SpectralNorm]:
    """The two largest singular values; arguments as for `attention_spectral_norm`."""
    first, second = _attention(query, key, 2, causal=causal, scaling=scaling, mask=mask)
    return first, second


@torch.no_grad()
def rows_spectral_norm(rows: AttentionRows) -> SpectralNorm:
    """The spectral norm of each head [heads] of attention that is given by its rows."""
    return _shaped(_solve_rows(rows, wanted=1), rows.query)[0]


@torch.no_grad()
def rows_leading_pair(rows: AttentionRows) -> tuple[SpectralNorm, SpectralNorm]:
    """The two largest singular values of each head [heads]."""
    first, second = _shaped(_solve_rows(rows, wanted=2), rows.query)
    return first, second


@dataclass(frozen=True)
class _Solved:
    """value, lower, upper [matrix, wanted]; iterations [matrix]."""

    value: Tensor
    lower: Tensor
    upper: Tensor
    iterations: Tensor

    @staticmethod
    def unknown(count: int, wanted: int, device: torch.device) -> _Solved:
        value = torch.full((count, wanted), torch.nan, dtype=torch.float64, device=device)
        iterations = torch.zeros(count, dtype=torch.int64, device=device)
        return _Solved(value, value.clone(), value.clone(), iterations)

    @staticmethod
    def direct(ends_of_values: tuple[Tensor, Tensor, Tensor]) -> _Solved:
        value, lower, upper = ends_of_values
        iterations = torch.zeros(len(value), dtype=torch.int64, device=value.device)
        return _Solved(value, lower, upper, iterations)

    @staticmethod
    def join(parts: list[_Solved]) -> _Solved:
        if len(parts) == 1:
            return parts[0]
        return _Solved(
            torch.cat([part.value for part in parts]),
            torch.cat([part.lower for part in parts]),
            torch.cat([part.upper for part in parts]),
            torch.cat([part.iterations for part in parts]),
        )

    def put(self, where: Tensor | slice, part: _Solved) -> None:
        self.value[where] = part.value
        self.lower[where] = part.lower
        self.upper[where] = part.upper
        self.iterations[where] = part.iterations


def _shaped(solved: _Solved, like: Tensor) -> list[SpectralNorm]:
    shape = like.shape[:-2]
    return [
        SpectralNorm(
            solved.value[:, k].reshape(shape),
            solved.lower[:, k].reshape(shape),
            solved.upper[:, k].reshape(shape),
            solved.iterations.reshape(shape),
        )
        for k in range(solved.value.shape[1])
    ]


def _flat(matrices: Tensor) -> Tensor:
    """[matrix, m, n] of a floating point tensor; or a sentence."""
    if matrices.ndim < 2:
        raise InputError(
            f"Singular values need matrices [..., m, n]; got the shape {tuple(matrices.shape)}."
        )
    if not matrices.is_floating_point():
        raise InputError(
            f"Singular values need floating point matrices, not {matrices.dtype}; "
            f"convert them with .float()."
        )
    m, n = matrices.shape[-2:]
    if m == 0 or n == 0:
        raise InputError(f"A matrix of shape ({m}, {n}) has no singular values.")
    return matrices.detach().reshape(-1, m, n)


def _solve(matrices: Tensor, *, wanted: int) -> _Solved:
    count, m, n = matrices.shape
    if not count:
        return _Solved.unknown(0, wanted, matrices.device)
    one_by_one = math.sqrt(m * n) >= LARGE and min(m, n) > SMALL * wanted
    size = 1 if one_by_one else max(1, TOGETHER // (m * n))
    solve = _solve_large if one_by_one else _solve_together
    parts = []
    with flushed():
        for part in matrices.split(size):
            parts.append(solve(part if part.dtype == torch.float64 else part.float(), wanted))
    return _Solved.join(parts)


def _solve_large(matrices: Tensor, wanted: int) -> _Solved:
    """One large matrix [1, m, n]."""
    operator = Chunked(matrices[0])
    # M 1 is at least the square of the largest entry, and at most m n times that.
    if not (operator.lowest >= 0 and MODERATE[0] ** 2 <= operator.reach <= MODERATE[1] ** 2):
        return _solve_unusual(matrices, wanted)
    sides = matrices.shape[1:]
    if wanted > 1 or matrices.device.type != "cpu":
        return _krylov(Several([operator]), 1, sides, wanted=wanted, like=matrices)
    ritz, positive, steps = lanczos(operator)
    vector = ritz.double().abs()
    certified = operator.certify(vector[None], positive)
    products = certified.products[0, 0]
    value = math.sqrt(float(torch.dot(products, products)) / float(torch.dot(vector, vector)))
    bound = float(quotient(certified.image[0], positive.double()))
    lower, upper = ends(value, bound, margin(*sides))
    found = torch.tensor([[value, lower, upper]], dtype=torch.float64)
    return _Solved(found[:, :1], found[:, 1:2], found[:, 2:], torch.tensor([steps]))


def _solve_together(matrices: Tensor, wanted: int) -> _Solved:
    """A batch [matrix, m, n] that fits the cache."""
    lowest, highest = matrices.amin((1, 2)), matrices.amax((1, 2))
    ordinary = _ordinary(lowest, highest)
    if bool(ordinary.all()):
        return _solve_ordinary(matrices, wanted)
    solved = _Solved.unknown(len(matrices), wanted, matrices.device)
    if bool(ordinary.any()):
        solved.put(ordinary, _solve_ordinary(matrices[ordinary], wanted))
    rest = ~ordinary
    solved.put(rest, _solve_unusual(matrices[rest], wanted))
    return solved


def _ordinary(lowest: Tensor, highest: Tensor) -> Tensor:
    """Nonnegative and of moderate size; False for NaN."""
    return (lowest >= 0) & (highest >= MODERATE[0]) & (highest <= MODERATE[1])


def _solve_ordinary(matrices: Tensor, wanted: int) -> _Solved:
    count, m, n = matrices.shape
    if wanted == 1 and min(m, n) <= SMALL:
        value, lower, upper = squared_norm(matrices)
        return _Solved.direct((value[:, None], lower[:, None], upper[:, None]))
    if min(m, n) <= SMALL * wanted:
        return _Solved.direct(by_eigenvalues(matrices, count=wanted))
    return _krylov(Stacked(matrices), count, (m, n), wanted=wanted, like=matrices)


def _solve_unusual(matrices: Tensor, wanted: int) -> _Solved:
    """Not finite: unknown. Negative entries, very large or small ones, zero: eigenvalues."""
    solved = _Solved.unknown(len(matrices), wanted, matrices.device)
    finite = torch.isfinite(matrices).flatten(1).all(1)
    if bool(finite.any()):
        solved.put(finite, _Solved.direct(by_eigenvalues(matrices[finite], count=wanted)))
    return solved


def _krylov(
    operator: Stacked | Several | MatrixFree,
    count: int,
    sides: tuple[int, ...] | torch.Size,
    *,
    wanted: int,
    like: Tensor,
    columns: int | None = None,
) -> _Solved:
    m, n = sides
    start = start_block(n, columns or wanted, dtype=like.dtype, device=like.device)
    spacing = 1.7 if isinstance(operator, Stacked) else 1.2
    found = leading_vectors(operator, start.expand(count, -1, -1), wanted=wanted, spacing=spacing)
    if wanted > 1:
        return _certified_pair(operator, found, margin(m, n))
    vectors = found.ritz.double().abs()
    certified = operator.certify(vectors, found.positive)
    return _certified_norm(vectors[:, 0], certified, found, margin(m, n))


def _certified_norm(vectors: Tensor, certified: Certified, found: Leading, slack: float) -> _Solved:
    value = certified.products[:, 0].square().sum(-1).sqrt()
    value = value / vectors.square().sum(-1).sqrt()
    bound = quotient(certified.image, found.positive.double())
    lower, upper = batched_ends(value, bound, slack)
    return _Solved(value[:, None], lower[:, None], upper[:, None], found.iterations)


def _certified_pair(
    operator: Stacked | Several | MatrixFree, found: Leading, slack: float
) -> _Solved:
    vectors = _orthonormal(found.ritz.double())
    certified = operator.certify(vectors, found.positive)
    bound = quotient(certified.image, found.positive.double())
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
    second_upper = torch.maximum(second_upper, value[:, 1])
    return _Solved(
        value,
        torch.stack([lower, second_lower], 1),
        torch.stack([upper, second_upper], 1),
        found.iterations,
    )


def _orthonormal(rows: Tensor) -> Tensor:
    """Two rows [matrix, 2, n], orthonormal in float64; a zero row stays zero."""
    first = rows[:, 0] / rows[:, 0].square().sum(-1, keepdim=True).sqrt()
    second = rows[:, 1]
    for _ in range(2):
        second = second - (second * first).sum(-1, keepdim=True) * first
        length = second.square().sum(-1, keepdim=True).sqrt()
        second = torch.where(length > 0, second / length, 0)
    return torch.stack([first, second], 1)


def _attention(
    query: Tensor,
    key: Tensor,
    wanted: int,
    *,
    causal: bool,
    scaling: float | None,
    mask: Tensor | None,
) -> list[SpectralNorm]:
    if query.ndim < 2 or key.ndim < 2 or query.shape[-1] != key.shape[-1]:
        raise InputError(
            f"Attention needs query [..., m, d] and key [..., n, d]; "
            f"got {tuple(query.shape)} and {tuple(key.shape)}."
        )
    m, n, width = query.shape[-2], key.shape[-2], query.shape[-1]
    if 0 in (m, n, width):
        raise InputError(f"Attention of {m} queries to {n} keys of width {width} has no matrix.")
    dimensions = max(query.ndim, key.ndim, 3)
    queries = query.reshape((1,) * (dimensions - query.ndim) + tuple(query.shape))
    keys = key.reshape((1,) * (dimensions - key.ndim) + tuple(key.shape))
    heads, groups = queries.shape[-3], keys.shape[-3]
    if heads == 1 and groups > 1:
        queries, heads = queries.expand(*queries.shape[:-3], groups, m, width), groups
    try:
        leading = torch.broadcast_shapes(queries.shape[:-3], keys.shape[:-3])
        masks = None if mask is None else mask.expand(*leading, heads, *mask.shape[-2:])
    except RuntimeError as error:
        shapes = [tuple(each.shape) for each in (query, key, mask) if each is not None]
        raise InputError(f"The leading shapes of {shapes} do not broadcast.") from error
    queries = queries.expand(*leading, heads, m, width).reshape(-1, heads, m, width)
    keys = keys.expand(*leading, groups, n, width).reshape(-1, groups, n, width)
    if masks is not None:
        masks = masks.reshape(-1, heads, *masks.shape[-2:])
    solved = _Solved.unknown(len(queries) * heads, wanted, query.device)
    for example in range(len(queries)):
        rows = AttentionRows(
            queries[example],
            keys[example],
            scaling=1 / math.sqrt(width) if scaling is None else scaling,
            causal=causal,
            mask=None if masks is None else masks[example],
        )
        solved.put(slice(example * heads, (example + 1) * heads), _solve_rows(rows, wanted=wanted))
    shape = (*leading, heads) if max(query.ndim, key.ndim) > 2 else ()
    like = query.new_empty(0).expand(*shape, 0, 0) if shape else query.new_empty(0, 0)
    return _shaped(solved, like)


def _solve_rows(rows: AttentionRows, *, wanted: int) -> _Solved:
    heads, m, n = rows.shape
    if m == 0 or n == 0:
        raise InputError(f"Attention of {m} queries to {n} keys has no singular values.")
    solved = _Solved.unknown(heads, wanted, rows.query.device)
    slack = rows.rounding()
    if heads * m * n <= WHOLE:
        solved.put(slice(None), _solve(rows.dense(dtype=torch.float64), wanted=wanted))
    else:
        for number in range(heads):
            one = rows.head(number)
            if m * n <= WHOLE or min(m, n) <= SMALL:
                part = _solve(one.dense(dtype=torch.float64), wanted=wanted)
            else:
                dtype = torch.float64 if rows.query.dtype == torch.float64 else torch.float32
                like = torch.empty(0, dtype=dtype, device=rows.query.device)
                with flushed():
                    part = _krylov(
                        MatrixFree(one), 1, (m, n), wanted=wanted, like=like, columns=COLUMNS
                    )
            solved.put(slice(number, number + 1), part)
    solved.lower.mul_(1 - slack[:, None])
    solved.upper.mul_(1 + slack[:, None])
    return solved
