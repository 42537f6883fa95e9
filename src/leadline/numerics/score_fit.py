"""What stands between the products of queries and keys and the logits that a softmax got.

    l_ij = cap(s <q_i, k_j>) + b_ij + (a constant of the row)

with s the scaling, found by least squares over all allowed entries after taking out the mean of
every row, and b a position bias: the range of what the fit leaves, where that is more than
rounding. A soft cap c, if there is one, is undone first: c atanh(l / c).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["Scores", "fit_scores"]

Tensor = torch.Tensor
ROUNDING = 64.0
"""Ranges below so many eps of the largest logit count as rounding, not as a bias."""


@dataclass(frozen=True)
class Scores:
    """The scaling, and the largest range of a position bias over the keys of one query."""

    scaling: float
    bias_range: float


def fit_scores(
    query: Tensor, key: Tensor, logits: Tensor, *, soft_cap: float | None = None
) -> Scores | None:
    """Fit one example: query [head, m, d], key [head, n, d], logits [head, m, n], -inf: hidden.

    None where nothing can be said: a row sees one key only, or values are not finite.
    """
    eps = torch.finfo(logits.dtype).eps
    seen = torch.isfinite(logits)
    level = torch.where(seen, logits, 0.0).double()
    largest = float(level.abs().max())
    if soft_cap is not None:
        level = soft_cap * torch.atanh((level / soft_cap).clamp(-1 + 1e-12, 1 - 1e-12))
    product = query.double() @ key.double().transpose(-1, -2)
    count = seen.sum(-1, keepdim=True).clamp_min(1)

    def centred(x: Tensor) -> Tensor:
        x = torch.where(seen, x, 0.0)
        return torch.where(seen, x - x.sum(-1, keepdim=True) / count, 0.0)

    level, product = centred(level), centred(product)
    size = product.square().sum()
    if not bool(torch.isfinite(size)) or float(size) == 0.0:
        return None
    scaling = float((level * product).sum() / size)
    left = level - scaling * product
    high = torch.where(seen, left, float("-inf")).amax(-1)
    low = torch.where(seen, left, float("inf")).amin(-1)
    span = float((high - low).nan_to_num(0.0, 0.0, 0.0).max())
    return Scores(scaling, span if span > ROUNDING * eps * (1 + largest) else 0.0)
