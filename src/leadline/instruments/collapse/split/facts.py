"""The facts that theorems on rank collapse need of a layer, exact far below rounding.

The formulas are those of `theory.rank_collapse`; E, gamma and the composite measure do not depend
on the scale of the rest R, so they are computed from its mantissas, and the cubic law

    |(scaling / n) sum_h R W_QK,h R' R W_h|_F

is a number times 2^(3k), given as its logarithm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from leadline.instruments.collapse.composite_residual import composite, smallest_composite
from leadline.instruments.collapse.split.rules.attention import heads_of
from leadline.instruments.collapse.split.scaled import Scaled
from leadline.instruments.collapse.split.split import Split
from leadline.instruments.collapse.weight_products import column_and_row_sums, product_gain
from leadline.theory import LayerFacts

__all__ = ["AttentionWeights", "Sizes", "attention_facts", "cosines", "sizes"]

Tensor = torch.Tensor


@dataclass(frozen=True)
class AttentionWeights:
    """The matrices of a layer, acting from the right: [head, width, size], output [head, size, width]."""

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    query_bias: Tensor | None = None
    key_bias: Tensor | None = None
    scaling: float | None = None

    @property
    def scale(self) -> float:
        return self.query.shape[-1] ** -0.5 if self.scaling is None else self.scaling


@dataclass(frozen=True)
class Sizes:
    """log10 of the composite residual, at the mean and at its smallest."""

    composite: float
    smallest: float


def sizes(x: Split) -> Sizes:
    """The composite residuals of one site."""
    apart = x.centred()
    values = apart.values[:1]
    return Sizes(
        _log10(float(composite(values)), apart.exponent),
        _log10(float(smallest_composite(values).value), apart.exponent),
    )


def attention_facts(z: Split, weights: AttentionWeights, *, causal: bool) -> LayerFacts:
    """The facts of one attention layer that reads z."""
    apart = z.centred()
    rest = apart.values[0]
    tokens = rest.shape[0]
    query, key = rest @ weights.query, rest @ weights.key
    scores = weights.scale * query @ key.mT
    spread = scores.amax(-1) - scores.amin(-1)
    columns = scores.abs().sum(-2).amax(-1)
    total, largest = spread.sum(-1), spread.amax(-1)
    law = (scores @ (rest @ weights.value) @ weights.output).sum(0) / tokens
    exponent = None if apart.exponent is None else 3 * apart.exponent
    ones, rows = column_and_row_sums(weights.value, weights.output)
    joined = weights.value.transpose(0, 1).flatten(1)
    return LayerFacts(
        query_key=tuple(column_and_row_sums(weights.query, weights.key.mT)[0].tolist()),
        value_output_1=tuple(ones.tolist()),
        value_output_inf=tuple(rows.tolist()),
        scaling=weights.scale,
        gamma=tuple(_ratio(t, m, c) for t, m, c in zip(total, largest, columns, strict=True)),
        joint_gamma=_ratio(total.sum(), largest.sum(), columns.sum()),
        diagonal=_diagonal(z, weights, causal=causal),
        value_gain=float(product_gain(joined, weights.output.flatten(0, 1))),
        cubic_law=_log10(float(law.norm()), exponent),
    )


def cosines(x: Split, update: Split) -> tuple[float, float]:
    """cos <res X, res U>, and |<X, U>| / (|X| |U|)."""
    return _cosine(x.centred(), update.centred()), abs(_cosine(_joined(x), _joined(update)))


def _joined(x: Split) -> Scaled:
    exponents = [e for e in (x.base.exponent, x.rest.exponent) if e is not None]
    top = max(exponents, default=0)
    return Scaled(x.base.at(top) + x.rest.at(top), top)


def _cosine(first: Scaled, second: Scaled) -> float:
    a, b = first.values[0].flatten(), second.values[0].flatten()
    size = float(a.norm() * b.norm())
    return float(a @ b) / size if size else 0.0


def _ratio(total: Tensor, largest: Tensor, columns: Tensor) -> float:
    size = float(columns)
    return math.sqrt(float(total) * float(largest)) / (2 * size) if size else 0.0


def _diagonal(z: Split, weights: AttentionWeights, *, causal: bool) -> float | None:
    """The largest weight that a token after the first gives to itself."""

    def projected(matrix: Tensor, bias: Tensor | None) -> Split:
        heads, _, size = matrix.shape
        flat = matrix.transpose(0, 1).flatten(1)
        y = F.linear(z, flat.mT, None if bias is None else bias.flatten())  # pyright: ignore
        return y.view(*z.shape[:2], heads, size).transpose(1, 2)  # pyright: ignore

    across, within = heads_of(
        projected(weights.query, weights.query_bias),
        projected(weights.key, weights.key_bias),
        weights.scale,
    )
    logits = across.at(0)[0] + within.at(0)[0]
    if causal:
        hidden = torch.ones_like(logits, dtype=torch.bool).triu(1)
        logits = logits.masked_fill(hidden, -math.inf)
    to_itself = torch.softmax(logits, -1).diagonal(dim1=-2, dim2=-1)[:, 1:]
    return float(to_itself.max()) if to_itself.numel() else None


def _log10(size: float, exponent: int | None) -> float:
    if exponent is None or size == 0.0:
        return -math.inf
    return math.log10(size) + exponent * math.log10(2.0)
