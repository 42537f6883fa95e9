"""What the place of a token does to its query, key and value, by one token at two places.

In the row `local swap` two neighbours have changed places at the input of the attention: what each of
them gave at its own place is compared with what it gives at the other's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from leadline.anatomy import SeenAttention
from leadline.instruments.visit.tokens.rounding import rounding
from leadline.instruments.visit.tokens.rows import ROWS, TokenRows

__all__ = ["places"]

SAME = 1e-3
"""Lengths, and products over lengths, that agree within this are the same. A rotation in float32 leaves
1e-6, and angles that differ between two neighbours change them by about 1."""


def places(attention: SeenAttention, rows: TokenRows) -> dict[str, Any]:
    """Which sides depend on the place, and whether queries and keys are turned by the same angles.

    `placed`: whether the query, and the key, depend on the place; None where the value does too, since
    then something else than the place may have changed. `angles`: where both are turned, that is keep
    their lengths, whether the product of one token with itself is the same at both places, as it is for
    equal angles. `value_turned`: whether the value is turned as well.
    """
    query, key, value = (
        _two_places(one, rows) for one in (attention.query, attention.key, attention.value)
    )
    if query is None or key is None or value is None or query[0].shape != key[0].shape:
        return {"placed": None}
    moved = [_differ(*one) for one in (query, key, value)]
    turned = [
        depends and _same_length(*one)
        for depends, one in zip(moved, (query, key, value), strict=True)
    ]
    if moved[2]:
        return {"placed": None, "value_turned": all(turned)}
    angles = None
    if all(turned[:2]):
        here, there = ((q * k).sum(-1) for q, k in zip(query, key, strict=True))
        size = (_lengths(query[0]) * _lengths(key[0])).amax()
        angles = "same" if bool((here - there).abs().amax() <= SAME * size) else "different"
    return {"placed": moved[:2], "angles": angles}


def _two_places(tensor: Tensor | None, rows: TokenRows) -> tuple[Tensor, Tensor] | None:
    """What two tokens gave at their own places, and at each other's: [token, head, feature]."""
    if tensor is None or tensor.ndim != 4 or tensor.shape[0] != rows.count:
        return None
    if tensor.shape[2] != rows.tokens:
        return None
    (first, second), swap = rows.pair, ROWS.index("local swap")
    return tensor[0, :, [first, second]], tensor[swap, :, [second, first]]


def _differ(here: Tensor, there: Tensor) -> bool:
    eps = torch.finfo(here.dtype).eps  # rounding, as for rows that moved
    limit = rounding(eps)
    return bool((here - there).abs().amax() > limit * here.abs().amax())


def _lengths(vectors: Tensor) -> Tensor:
    return torch.linalg.vector_norm(vectors.float(), dim=-1)


def _same_length(here: Tensor, there: Tensor) -> bool:
    one, other = _lengths(here), _lengths(there)
    return bool((one - other).abs().amax() <= SAME * one.amax())
