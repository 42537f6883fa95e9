"""What the mask of an attention lets through, told apart from what its logits choose.

A mask is what stands in the logits beside the products of queries and keys. So wide logits do not hide
anything, however small a weight they leave, and a number that is added to all keys alike does not either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from leadline.anatomy import SeenAttention

__all__ = ["MaskedLogits", "masked_logits", "visibility"]

HIDDEN = -1000.0
"""A mask that lowers a logit by this much, below what it leaves to other keys, hides the key."""
TELLING = 1e-3
"""Products that differ by more give weights that differ, in float32 by thousands of steps."""


@dataclass(frozen=True)
class MaskedLogits:
    """Which keys each query may see, and whether the mask left anything of the products."""

    allowed: Tensor
    """[example, head, query, key]"""
    drowned: bool
    """Whether a number in the mask is so large that the products are rounded away beside it."""


def masked_logits(attention: SeenAttention) -> MaskedLogits | None:
    """Read the mask of one attention; None where its logits are not known."""
    if attention.route == "weights":
        return _of_weights(attention)
    query, key = attention.query, attention.key
    if query is None or key is None or query.ndim != 4:
        return None
    shape = (query.shape[0], 1, query.shape[2], key.shape[2])
    allowed = torch.ones(shape, dtype=torch.bool, device=query.device)
    if attention.causal:
        allowed = allowed.tril()
    mask = attention.mask
    if mask is None:
        return MaskedLogits(allowed, drowned=False)
    if mask.dtype == torch.bool:
        return MaskedLogits(allowed & mask, drowned=False)
    top, shifted = _top(mask)
    allowed = allowed & (mask > top + HIDDEN)
    drowned = False
    if shifted and query.shape[1] == key.shape[1]:
        products = query @ key.transpose(-1, -2) * (attention.scaling or 1.0)
        drowned = _even(products + mask, products, allowed)
    return MaskedLogits(allowed, drowned)


def _of_weights(attention: SeenAttention) -> MaskedLogits | None:
    logits, weights = attention.logits, attention.weights
    if logits is None or weights is None or weights.ndim != 4:
        return None
    products = _products(attention)
    if products is None:
        top, _ = _top(logits)
        return MaskedLogits((logits > top + HIDDEN) & (weights > 0), drowned=False)
    added = logits - products
    top, shifted = _top(added)
    # What is infinite on both sides leaves no number: the row is not finite, and nothing is hidden.
    allowed = (added > top + HIDDEN) & (logits > -torch.inf)
    return MaskedLogits(allowed, drowned=shifted and _even(weights, products, allowed))


def _products(attention: SeenAttention) -> Tensor | None:
    """Scaled products of queries and keys; None where they, or what became of them, are not known."""
    query, key, logits = attention.query, attention.key, attention.logits
    scaling, capped = attention.scaling, attention.soft_cap is not None
    if query is None or key is None or logits is None or scaling is None or capped:
        return None
    if query.ndim != 4 or query.shape[:2] != key.shape[:2]:
        return None
    return query @ key.transpose(-1, -2) * scaling


def _top(added: Tensor) -> tuple[Tensor, bool]:
    """What a mask leaves to the key that it hides least, by row, and whether no row is left alone.

    A row that is hidden throughout while others are not is an empty row: its top is 0. Where every row
    is lowered, the mask is shifted as a whole, and hides what is lower than the rest.
    """
    top = added.amax(-1, keepdim=True)
    shifted = bool((top < HIDDEN).all()) and bool(torch.isfinite(top).all())
    return (top if shifted else top.clamp_min(0.0)), shifted


def _even(weights: Tensor, products: Tensor, allowed: Tensor) -> bool:
    """Whether visible keys all have the same weight, although their products differ."""
    allowed = allowed.expand_as(weights)

    def spread(values: Tensor) -> Tensor:
        most = values.masked_fill(~allowed, -torch.inf).amax(-1)
        return (most - values.masked_fill(~allowed, torch.inf).amin(-1))[allowed.any(-1)]

    return not bool(spread(weights).any()) and bool((spread(products) > TELLING).any())


def visibility(masked: MaskedLogits, real: Tensor | None) -> dict[str, Any] | None:
    """What the mask lets through, over all heads: of square attention between the tokens."""
    seen = masked.allowed
    if seen.shape[-1] != seen.shape[-2] or seen.shape[-1] < 2:
        return None
    tokens = seen.shape[-1]
    rows = torch.ones(seen.shape[0], tokens, dtype=torch.bool, device=seen.device)
    if real is not None and real.shape[1] == tokens and real.shape[0] >= seen.shape[0]:
        rows = real[: seen.shape[0]].to(seen.device).bool()
    any_head = seen.any(1)
    if bool(rows.all()) and not bool((any_head == any_head[:1]).all()):
        return None  # what is hidden depends on the tokens, as with the best keys of an index
    back = torch.arange(tokens, device=seen.device)
    apart = back[:, None] - back[None, :]
    reached = torch.where(any_head & rows[:, :, None] & rows[:, None, :], apart, -tokens)
    return {
        "empty": int((~any_head.any(-1) & rows).sum()),
        # The first query may be shown its own key so that its row is not empty.
        "never_itself": not bool(any_head.diagonal(dim1=-2, dim2=-1)[:, 1:][rows[:, 1:]].any()),
        "ahead": int(torch.where(any_head & rows[:, :, None], -apart, -tokens).amax()),
        "back": int(reached.amax()),
        "tokens": tokens,
        "padding_free": bool(rows.all()),
        "padding": bool((any_head & rows[:, :, None] & ~rows[:, None, :]).any()),
    }
