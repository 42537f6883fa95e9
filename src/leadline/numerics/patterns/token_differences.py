"""How the heads of a layer see differences between tokens: E, its oscillation, gamma, the cubic law.

R = X - 1 m' is what enters the projections less its mean token, n tokens. Weights act from the
right, W_QK,h = W_Q,h W_K,h', W_h = W_V,h W_O,h. Biases cancel in differences, so

    E_h     = scaling R W_QK,h R' = scaling (q - qbar)(k - kbar)'
    osc_i   = max_j E_ij - min_j E_ij
    gamma_h = sqrt(sum_i osc_i  max_i osc_i) / (2 |E_h|_1),   |E|_1 the largest column sum of |E|
    joint   = sqrt(sum_h sum_i osc_i  sum_h max_i osc_i) / (2 sum_h |E_h|_1)
    law     = log10 |(scaling / n) sum_h R W_QK,h R' R W_h|_F
            = log10 |(scaling / n) sum_h (q - qbar) [(k - kbar)'(v - vbar)] W_O,h|_F

(gamma: Dong, Cordonnier, Loukas 2021, arXiv 2103.03404, second version). gamma is at most sqrt(n),
and 0 where E is 0. The law is what a layer without mask, skip connection and positions tends to
leave of small differences. No n x n matrix is formed for it, and only rows of E for gamma.

All of it in float64. q, k and v are scaled to size 1 first: the law holds three of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from leadline.anatomy.exactness import exactly
from leadline.anatomy.tap.output_projection import OutputProjection
from leadline.numerics.patterns.patterns import LONG, Patterns
from leadline.numerics.tokens import Tokens

__all__ = ["AttentionHeads", "Gammas", "cubic_law", "diagonals", "gammas", "residual_cosines"]

Tensor = torch.Tensor
_AT_ONCE = 1 << 22
"""Entries of E that stand in memory together."""


@dataclass(frozen=True)
class AttentionHeads:
    """The heads of one sublayer: their matrices, the real tokens, and W_O or why there is none.

    `calls` counts the calls of attention that the sublayer made; these are the heads of the first.
    """

    patterns: Patterns
    tokens: Tensor | None
    output: OutputProjection | str
    calls: int = 1

    def kept(self, tensor: Tensor) -> Iterator[Tensor]:
        """[head, token, feature] of every example of two tokens or more, without padding.

        Keys and values of a group come once for every head.
        """
        heads = self.patterns.heads
        if tensor.shape[1] != heads:
            tensor = tensor.repeat_interleave(heads // tensor.shape[1], 1)
        for example in range(self.patterns.examples):
            if self.patterns.size(example)[0] > 1:
                here = tensor[example]
                yield here if self.tokens is None else here[:, self.tokens[example]]


@dataclass(frozen=True)
class Gammas:
    """gamma of every head, [example, head], and of all heads together, [example]."""

    each: Tensor
    joint: Tensor


@exactly()
def gammas(heads: AttentionHeads) -> Gammas:
    """gamma of every example of two tokens or more."""
    attention = heads.patterns.attention
    assert attention.query is not None and attention.key is not None
    each: list[Tensor] = []
    joint: list[Tensor] = []
    for query, key in zip(heads.kept(attention.query), heads.kept(attention.key), strict=True):
        (q, _), (k, _) = _differences(query), _differences(key)
        columns, total, largest = _sizes(q, k)
        each.append(_ratio(total, largest, columns))
        joint.append(_ratio(total.sum(), largest.sum(), columns.sum()))
    return Gammas(torch.stack(each), torch.stack(joint))


@exactly()
def cubic_law(heads: AttentionHeads, *, scaling: float) -> list[float]:
    """log10 of the law's Frobenius norm, of every example of two tokens or more; -inf for 0."""
    attention, output = heads.patterns.attention, heads.output
    assert attention.query is not None and attention.key is not None
    assert isinstance(output, OutputProjection)
    weight = output.weight.flatten(0, 1)
    logarithms: list[float] = []
    for query, key, value in zip(
        heads.kept(attention.query),
        heads.kept(attention.key),
        heads.kept(attention.value),
        strict=True,
    ):
        (q, a), (k, b), (v, c) = _differences(query), _differences(key), _differences(value)
        moved = (q @ (k.mT @ v)).transpose(0, 1).flatten(1) @ weight
        size = float(torch.linalg.matrix_norm(moved))
        factor = abs(scaling) / query.shape[1]
        parts = (size, factor, a, b, c)
        logarithms.append(sum(map(math.log10, parts)) if min(parts) > 0 else -math.inf)
    return logarithms


def diagonals(patterns: Patterns) -> Tensor | None:
    """The largest A_ii over i >= 2, [example, head]; of every example of two tokens or more.

    Forms the matrices of one example at a time; None from `LONG` keys on, and where queries and
    keys are not the same tokens.
    """
    sizes = [patterns.size(example) for example in range(patterns.examples)]
    if any(rows != columns or columns >= LONG for rows, columns in sizes):
        return None
    largest = [
        matrices.diagonal(dim1=-2, dim2=-1)[:, 1:].amax(-1).double()
        for _, matrices in patterns.matrices()
        if matrices.shape[-1] > 1
    ]
    return torch.stack(largest) if largest else None


@exactly()
def residual_cosines(x: Tokens, u: Tokens) -> tuple[Tensor, Tensor]:
    """cos(res X, res U) and |<X, U>| / (|X| |U|), one number per example where both are not 0."""
    aligned: list[Tensor] = []
    overlapping: list[Tensor] = []
    for example in range(len(x.x)):
        keep = slice(None) if x.mask is None else x.mask[example]
        stream, update = x.x[example, keep].double(), u.x[example, keep].double()
        if len(stream) == 0:
            continue
        overlapping.append(_cosine(stream, update).abs())
        aligned.append(_cosine(*(_differences(one.unsqueeze(0))[0] for one in (stream, update))))
    return _known(aligned, x.x), _known(overlapping, x.x)


def _cosine(first: Tensor, second: Tensor) -> Tensor:
    """NaN where one of them is 0."""
    a, b = (one / one.abs().amax() for one in (first, second))
    return (a * b).sum() / (torch.linalg.vector_norm(a) * torch.linalg.vector_norm(b))


def _known(values: list[Tensor], like: Tensor) -> Tensor:
    every = torch.stack(values) if values else torch.zeros(0, device=like.device)
    return every[~every.isnan()]


def _differences(vectors: Tensor) -> tuple[Tensor, float]:
    """[head, token, feature] less the mean token, over its largest entry, and that entry."""
    x = vectors.double()
    x = x - x.mean(1, keepdim=True)
    x = x - x.mean(1, keepdim=True)
    size = float(x.abs().amax())
    return (x / size if size > 0 else x), size


def _sizes(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """|E|_1, sum_i osc_i and max_i osc_i of every head, without the scaling."""
    heads, tokens, _ = query.shape
    columns = query.new_zeros(heads, tokens)
    total, largest = query.new_zeros(heads), query.new_zeros(heads)
    step = max(1, _AT_ONCE // (heads * tokens))
    for rows in query.split(step, 1):
        part = rows @ key.mT
        osc = part.amax(-1) - part.amin(-1)
        total += osc.sum(-1)
        largest = torch.maximum(largest, osc.amax(-1))
        columns += part.abs().sum(1)
    return columns.amax(-1), total, largest


def _ratio(total: Tensor, largest: Tensor, columns: Tensor) -> Tensor:
    return torch.where(columns > 0, (total * largest).sqrt() / (2 * columns), 0.0)
