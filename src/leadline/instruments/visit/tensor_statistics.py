"""Numbers of one weight tensor, from one read of it, a block of rows at a time.

A tensor is seen as a matrix: rows are outputs of a linear map, or inputs where it is stored the other
way round. What needs a decomposition or sorting is done on samples of fixed size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["TensorStatistics", "as_matrix", "grid_share", "rank_share", "read_tensor"]

CHUNK = 1 << 18
"""So many values are read at a time: they stay in the cache of a processor."""
LONGEST_DOUBLE = 1 << 20
"""Tensors of up to so many values are read in double precision."""
RANK_SAMPLE = 96
"""Rank is read off at most so many rows and as many columns, drawn at random."""
RANK_TOLERANCE = 1e-4
"""A singular value below this share of the largest counts as zero. Rounding of a product of thin
factors to float32 leaves less than 1e-6; spectra of trained weights reach 1e-3 only at their end."""
STRETCH = 64
"""Quantisation is looked for in stretches of so many values of a row or column: the usual size of
a group that shares one scale."""
STRETCHES = 24
"""So many stretches are looked at, spread over the tensor."""
LEVELS = 256
"""A grid of at most so many steps: 8 bits."""


@dataclass(frozen=True, slots=True)
class TensorStatistics:
    """What one read of a tensor shows. Shares are of all values, rows or columns.

    `kurtosis` is the mean fourth power over the squared mean square: 3 of normal draws, 1.8 of
    uniform ones. `row_spread` and `column_spread` are the deviations of the logarithm of the norms of rows and
    columns; None where there are fewer than four.
    """

    rms: float
    mean: float
    largest: float
    kurtosis: float
    zeros: float
    not_finite: int
    zero_rows: float
    zero_columns: float
    row_spread: float | None
    column_spread: float | None


def as_matrix(tensor: Tensor) -> Tensor:
    """A tensor as a matrix: experts stacked by rows, kernels laid out in their row."""
    if tensor.ndim < 2:
        return tensor.reshape(1, -1)
    return tensor.reshape(-1, tensor.shape[-1]) if tensor.ndim == 3 else tensor.flatten(1)


@torch.no_grad()
def read_tensor(tensor: Tensor) -> TensorStatistics:
    """Read a tensor once. Values that are not finite are counted and taken for zero."""
    matrix = as_matrix(tensor.detach())
    rows, columns = matrix.shape
    total = square = fourth = largest = 0.0
    zeros = not_finite = broken_rows = 0
    row_squares: list[Tensor] = []
    column_squares = torch.zeros(columns, dtype=torch.float64, device=matrix.device)
    # Single precision sums a block to 1e-6, and reads twice as many values a second.
    wide = matrix.numel() <= LONGEST_DOUBLE or matrix.dtype == torch.float64
    for block in _blocks(matrix):
        values = block.double() if wide else block.float()
        squares = values.square()
        by_row = squares.sum(1)
        if not bool(torch.isfinite(by_row).all()):
            values = block.double()
            finite = torch.isfinite(values)
            not_finite += int((~finite).sum())
            # Zeros are counted below: what is not finite is none.
            zeros -= int((~finite).sum())
            values = torch.where(finite, values, 0.0)
            squares = values.square()
            by_row = squares.sum(1)
            broken_rows += int(((by_row == 0) & ~finite.all(1)).sum())
        if bool((values == 0).any()):  # counting takes longer than all the sums
            zeros += values.numel() - int(torch.count_nonzero(values))
        fourth += float(torch.dot(squares.flatten(), squares.flatten()))
        total += float(values.sum())
        least, most = torch.aminmax(values)
        largest = max(largest, -float(least), float(most))
        square += float(by_row.sum(dtype=torch.float64))
        row_squares.append(by_row.double())
        column_squares += squares.sum(0)
    size = max(1, rows * columns)
    by_rows = torch.cat(row_squares) if row_squares else column_squares[:0]
    flat = tensor.ndim < 2
    return TensorStatistics(
        rms=math.sqrt(square / size),
        mean=total / size,
        largest=largest,
        kurtosis=fourth * size / square**2 if square > 0 else 0.0,
        zeros=zeros / size,
        not_finite=not_finite,
        zero_rows=0.0 if flat else _zero_share(by_rows) - broken_rows / max(1, rows),
        zero_columns=0.0 if flat else _zero_share(column_squares),
        row_spread=None if flat else _log_spread(by_rows),
        column_spread=None if flat else _log_spread(column_squares),
    )


def _blocks(matrix: Tensor) -> Iterator[Tensor]:
    step = max(1, CHUNK // max(1, matrix.shape[1]))
    for start in range(0, matrix.shape[0], step):
        if matrix.shape[1]:
            yield matrix[start : start + step]


def _zero_share(squares: Tensor) -> float:
    return float((squares == 0).double().mean()) if squares.numel() else 0.0


def _log_spread(squares: Tensor) -> float | None:
    """The deviation of the logarithm of norms, from their squares; those that are 0 left out."""
    positive = squares[squares > 0]
    if positive.numel() < 4:
        return None
    return float(positive.log().mul(0.5).std())


@torch.no_grad()
def rank_share(tensor: Tensor, seed: int = 0) -> float | None:
    """The numerical rank of a random piece of a matrix over the side of the piece.

    A piece of `k` rows and columns has rank k for nearly every matrix of rank k or more, and the
    rank of the matrix where that is smaller.
    """
    matrix = as_matrix(tensor.detach())
    side = min(RANK_SAMPLE, *matrix.shape)
    if tensor.ndim < 2 or side < 8:
        return None
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(matrix.shape[0], generator=generator)[:side].to(matrix.device)
    columns = torch.randperm(matrix.shape[1], generator=generator)[:side].to(matrix.device)
    piece = matrix[rows][:, columns].float()
    if not bool(torch.isfinite(piece).all()) or not bool(piece.any()):
        return None
    values = torch.linalg.svdvals(piece)
    return float((values > RANK_TOLERANCE * values[0]).double().mean())


@torch.no_grad()
def grid_share(tensor: Tensor) -> float | None:
    """The share of stretches whose values lie on a grid of at most 256 steps, or are very few.

    Rows and columns are tried, because a scale may belong to either; the larger share counts.
    """
    matrix = as_matrix(tensor.detach())
    if tensor.ndim < 2 or min(matrix.shape) < 16:
        return None
    return max(_on_grid(matrix), _on_grid(matrix.T))


def _on_grid(matrix: Tensor) -> float:
    rows, columns = matrix.shape
    length = min(STRETCH, columns)
    count = min(STRETCHES, rows)
    hits = 0
    for at in range(count):
        row = at * rows // count
        start = (at * 7919) % max(1, columns // length) * length
        hits += _is_grid(matrix[row, start : start + length].double().cpu())
    return hits / count


def _is_grid(values: Tensor) -> bool:
    """Whether values are few, or whole multiples of one step with at most 256 steps between them."""
    distinct = torch.unique(values)
    if distinct.numel() < 3 or not bool(torch.isfinite(distinct).all()):
        return False  # constant, or one value and zero: a mask, a gain, a pruned row
    if distinct.numel() <= values.numel() // 4:
        return True
    gaps = distinct.diff()
    extent = float(distinct[-1] - distinct[0])
    # The smallest gap may be several steps; 1 to 4 of them are tried.
    for steps in range(1, 5):
        step = float(gaps.min()) / steps
        if extent / step > LEVELS:
            return False
        off = (gaps / step - (gaps / step).round()).abs()
        # Half precision rounds the values of a grid by up to 1/256 of themselves.
        if float(off.max()) < 0.02:
            return True
    return False
