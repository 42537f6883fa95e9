"""The leading singular values of attention matrices, each with an interval that contains it.

`value` is a float64 Rayleigh quotient, so a lower bound up to rounding; `lower` and `upper` contain
the true value (for half precision and float32 inputs: that of the numbers as they are stored).
A matrix with an entry that is not finite has NaN in all three, alone. Where the interval is wider
than LOOSE of the value, `loose` says so.

The upper end of the second singular value is proved for sides up to 64, and an estimate beyond: its
Ritz value and four times the residual of its vector, at most what is proved. No proof is cheap where
many singular values lie close together. The true value was inside for the patterns of models that
were tried; in masks built against it, a vector that is orthogonal to both start vectors hid a larger
value, rarely and by a few percent.
A matrix with a negative entry is solved by a float64 eigensolver, with the interval of its backward
error, at any size. `leading` lists which method is used when.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from leadline.anatomy.exactness import exactly
from leadline.anatomy.tensors import check_dense
from leadline.errors import InputError, as_whole_number, shown
from leadline.numerics.spectra.attention_rows import AttentionRows
from leadline.numerics.spectra.eigenvalues import by_svd
from leadline.numerics.spectra.leading import Solved, is_large, solve, solve_blocks, solve_rows

__all__ = [
    "LOOSE",
    "SpectralNorm",
    "attention_leading_pair",
    "attention_spectral_norm",
    "blocks_leading_pair",
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


@exactly()
def spectral_norm(matrices: Tensor) -> SpectralNorm:
    """The largest singular value of each matrix of [..., m, n]."""
    return _shaped(solve(_flat(matrices), wanted=1), matrices)[0]


@exactly()
def leading_pair(matrices: Tensor) -> tuple[SpectralNorm, SpectralNorm]:
    """The largest and the second largest singular value of each matrix of [..., m, n]."""
    first, second = _shaped(solve(_flat(matrices), wanted=2), matrices)
    return first, second


@exactly()
def blocks_leading_pair(
    blocks: Sequence[Tensor], columns: int
) -> tuple[SpectralNorm, SpectralNorm]:
    """The two largest singular values of matrices given as blocks of rows, `columns` wide in all.

    Each block is [matrix, row, column]; the columns that it lacks on the right are zero.
    """
    rows = sum(block.shape[1] for block in blocks)
    if not is_large(rows, columns, wanted=2):
        matrices = blocks[0].new_zeros(blocks[0].shape[0], rows, columns)
        first = 0
        for block in blocks:
            matrices[:, first : first + block.shape[1], : block.shape[2]] = block
            first += block.shape[1]
        return leading_pair(matrices)
    row_blocks = [[block[number] for block in blocks] for number in range(blocks[0].shape[0])]
    solved = solve_blocks(row_blocks, columns, wanted=2)
    one, two = _shaped(solved, blocks[0])
    return one, two


def second_singular_value(matrices: Tensor) -> SpectralNorm:
    """The second largest singular value of each matrix; 0 where there is only one."""
    return leading_pair(matrices)[1]


@exactly()
def singular_values(matrices: Tensor, *, count: int | None = None) -> Tensor:
    """[..., min(m, n)] or the first `count`: float64, descending, by a float64 SVD."""
    flat = _flat(matrices)
    finite = torch.isfinite(flat).flatten(1).all(1)
    values = by_svd(torch.where(finite[:, None, None], flat, 0))
    values = torch.where(finite[:, None], values, torch.nan)
    if count is not None:
        if as_whole_number(count) is None or not 1 <= count <= values.shape[1]:
            raise InputError(
                f"{shown(count)} singular values were asked for; a matrix of shape "
                f"{tuple(matrices.shape[-2:])} has {values.shape[1]}."
            )
        values = values[:, :count]
    return values.reshape(*matrices.shape[:-2], values.shape[1])


@exactly()
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


@exactly()
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


@exactly()
def rows_spectral_norm(rows: AttentionRows) -> SpectralNorm:
    """The spectral norm of each head [heads] of attention that is given by its rows."""
    return _shaped(solve_rows(_not_empty(rows), wanted=1), rows.query)[0]


@exactly()
def rows_leading_pair(rows: AttentionRows) -> tuple[SpectralNorm, SpectralNorm]:
    """The two largest singular values of each head [heads]."""
    first, second = _shaped(solve_rows(_not_empty(rows), wanted=2), rows.query)
    return first, second


def _shaped(solved: Solved, like: Tensor) -> list[SpectralNorm]:
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


def _check_tensor(value: object, name: str) -> None:
    if not isinstance(value, Tensor):
        raise InputError(
            f"{name} is {shown(value)}; singular values need a torch tensor, such as "
            "torch.as_tensor makes."
        )
    check_dense(value, name)


def _flat(matrices: Tensor) -> Tensor:
    """[matrix, m, n] of a floating point tensor; or a sentence."""
    _check_tensor(matrices, "The matrix")
    if matrices.ndim < 2:
        raise InputError(
            f"Singular values need matrices [..., m, n]; got the shape {tuple(matrices.shape)}."
        )
    if not matrices.is_floating_point() or matrices.itemsize == 1:
        raise InputError(
            f"Singular values need floating point matrices, not {matrices.dtype}; "
            f"convert them with .float()."
        )
    m, n = matrices.shape[-2:]
    if m == 0 or n == 0:
        raise InputError(f"A matrix of shape ({m}, {n}) has no singular values.")
    return matrices.detach().reshape(-1, m, n)


def _not_empty(rows: AttentionRows) -> AttentionRows:
    _, m, n = rows.shape
    if m == 0 or n == 0:
        raise InputError(f"Attention of {m} queries to {n} keys has no singular values.")
    return rows


def _attention(
    query: Tensor,
    key: Tensor,
    wanted: int,
    *,
    causal: bool,
    scaling: float | None,
    mask: Tensor | None,
) -> list[SpectralNorm]:
    _check_tensor(query, "The query")
    _check_tensor(key, "The key")
    if mask is not None:
        _check_tensor(mask, "The mask")
    if query.ndim < 2 or key.ndim < 2 or query.shape[-1] != key.shape[-1]:
        raise InputError(
            f"Attention needs query [..., m, d] and key [..., n, d]; "
            f"got {tuple(query.shape)} and {tuple(key.shape)}."
        )
    if scaling is not None and not isinstance(scaling, (int, float)):
        raise InputError(f"The scaling is {scaling!r}; give a number, or None for 1/sqrt(d).")
    if mask is not None and mask.ndim < 2:
        # One number per key, as in broadcasting.
        mask = mask.reshape((1,) * (2 - mask.ndim) + tuple(mask.shape))
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
    solved = Solved.unknown(len(queries) * heads, wanted, query.device)
    for example in range(len(queries)):
        rows = AttentionRows(
            queries[example],
            keys[example],
            scaling=1 / math.sqrt(width) if scaling is None else scaling,
            causal=causal,
            mask=None if masks is None else masks[example],
        )
        solved.put(slice(example * heads, (example + 1) * heads), solve_rows(rows, wanted=wanted))
    shape = (*leading, heads) if max(query.ndim, key.ndim) > 2 else ()
    like = query.new_empty(0).expand(*shape, 0, 0) if shape else query.new_empty(0, 0)
    return _shaped(solved, like)
