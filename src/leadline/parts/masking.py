"""Which tokens a query may see: padding hidden, and later tokens where attention is causal."""

from __future__ import annotations

import torch
from torch import Tensor

from leadline.errors import InputError

__all__ = ["mask_of"]


def mask_of(
    padding: Tensor | None, *, tokens: int, start: int, causal: bool, device: torch.device
) -> tuple[Tensor | None, bool]:
    """The mask [example or 1, 1, query, key], and whether the kernel hides later tokens itself.

    `start` tokens are in the cache already; `padding` is 0 at padding and covers them too. A
    query that would see nothing at all (padding before the first token) sees itself.
    """
    if padding is not None and (padding.ndim != 2 or padding.shape[1] != start + tokens):
        raise InputError(
            f"The attention mask is {list(padding.shape)}; give one number per example and token, "
            f"{start + tokens} tokens in all."
        )
    if padding is not None and bool(padding.all()):
        padding = None
    if padding is None:
        if not causal or tokens == 1:
            return None, False
        if start == 0:
            return None, True
    keys = torch.arange(start + tokens, device=device)
    queries = keys[start:].unsqueeze(1)
    mask = keys <= queries
    if not causal:
        mask = torch.ones_like(mask)
    if padding is None:
        return mask[None, None], False
    visible = mask & padding.bool()[:, None, None, :]
    return visible | ((keys == queries) & ~visible.any(-1, keepdim=True)), False
