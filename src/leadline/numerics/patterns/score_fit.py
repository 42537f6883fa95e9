"""What stands between the products of queries and keys and the logits that a softmax got.

    l_ij = cap(s <q_i, k_j>) + b_ij + (a constant of the row)

The scaling s is known where it could be followed. Otherwise it is found by least squares over all
allowed entries, after taking out the mean of every row, and believed only if nothing is left. What
is left with a known scaling is a bias: its largest range over a row. A soft cap c, if there is
one, is undone first: c atanh(l / c). A bias that differs from example to example depends on more
than positions, so its range is not reported.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["Scores", "fit_scores", "same_bias"]

Tensor = torch.Tensor
ROUNDING = 64.0
"""Ranges below so many eps of the largest logit count as rounding, not as a bias."""


@dataclass(frozen=True)
class Scores:
    """The scaling, and the largest range of a position bias over the keys of one query."""

    scaling: float
    bias_range: float


def fit_scores(
    query: Tensor,
    key: Tensor,
    logits: Tensor,
    *,
    scaling: float | None = None,
    soft_cap: float | None = None,
    eps: float = torch.finfo(torch.float32).eps,
) -> Scores | None:
    """Fit one example: query [head, m, d], key [head, n, d], logits [head, m, n], -inf: hidden.

    None where nothing can be said: all products are equal, values are not finite, or the scaling
    is not known and more than it stands between products and logits.
    """
    visible = torch.isfinite(logits)
    largest = float(torch.where(visible, logits, 0.0).abs().max())
    level = _uncapped(torch.where(visible, logits, 0.0).double(), soft_cap)
    product = query.double() @ key.double().transpose(-1, -2)
    count = visible.sum(-1, keepdim=True).clamp_min(1)

    def centred(x: Tensor) -> Tensor:
        x = torch.where(visible, x, 0.0)
        return torch.where(visible, x - x.sum(-1, keepdim=True) / count, 0.0)

    level, product = centred(level), centred(product)
    size = product.square().sum()
    if not bool(torch.isfinite(size)) or float(size) == 0.0:
        return None
    fitted = scaling if scaling is not None else float((level * product).sum() / size)
    left = level - fitted * product
    high = torch.where(visible, left, float("-inf")).amax(-1)
    low = torch.where(visible, left, float("inf")).amin(-1)
    span = float((high - low).nan_to_num(0.0, 0.0, 0.0).max())
    if span <= ROUNDING * eps * (1 + largest):
        return Scores(fitted, 0.0)
    return None if scaling is None else Scores(fitted, span)


def same_bias(
    one: tuple[Tensor, Tensor, Tensor],
    other: tuple[Tensor, Tensor, Tensor],
    *,
    scaling: float,
    soft_cap: float | None = None,
    eps: float = torch.finfo(torch.float32).eps,
) -> bool:
    """Whether what is added to the products is the same for two examples, where both have tokens.

    Each example is (query, key, logits). A constant of a row does not count, so rows are compared
    from their first key on.
    """
    rows = min(one[2].shape[-2], other[2].shape[-2])
    keys = min(one[2].shape[-1], other[2].shape[-1])
    left: list[Tensor] = []
    largest = 0.0
    for query, key, logits in (one, other):
        part = logits[:, :rows, :keys].double()
        visible = torch.isfinite(part)
        largest = max(largest, float(torch.where(visible, part, 0.0).abs().max()))
        level = _uncapped(torch.where(visible, part, 0.0), soft_cap)
        product = query[:, :rows].double() @ key[:, :keys].double().transpose(-1, -2)
        added = torch.where(visible, level - scaling * product, 0.0)
        left.append(torch.where(visible, added - added[..., :1], 0.0))
    return float((left[0] - left[1]).abs().max()) <= ROUNDING * eps * (1 + largest)


def _uncapped(level: Tensor, soft_cap: float | None) -> Tensor:
    if soft_cap is None:
        return level
    return soft_cap * torch.atanh((level / soft_cap).clamp(-1 + 1e-12, 1 - 1e-12))
