"""Attention kernels with a slip in them, and how one is put into the attention of any family.

A kernel takes q, k, v [example, head, token, head width], `allowed` [..., query, key] (True where a
query may look; None where it may look everywhere), the scale, and a bias of the logits or None. It
returns [example, head, token, head width].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from leadline.testing.faults.rewriting import Edit, rewrite
from leadline.testing.faults.subject import Subject

__all__ = ["Kernel", "attend", "causal", "put_kernel", "with_mask"]

Kernel = Callable[[Tensor, Tensor, Tensor, "Tensor | None", float, "Tensor | None"], Tensor]


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    allowed: Tensor | None,
    scale: float,
    bias: Tensor | None,
    *,
    axis: int = -1,
) -> Tensor:
    """The textbook: softmax(scale q k' + bias) v, with the softmax over an axis."""
    logits = q @ k.transpose(-1, -2) * scale
    if bias is not None:
        logits = logits + bias
    if allowed is not None:
        logits = logits.masked_fill(~allowed, -1e9)
    return torch.softmax(logits, dim=axis) @ v


def causal(tokens: int, *, ahead: int = 0) -> Tensor:
    """True where a query may look: up to itself, and `ahead` tokens further."""
    return torch.ones(tokens, tokens, dtype=torch.bool).tril(ahead)


def with_mask(mask: Callable[[int], Tensor | None]) -> Kernel:
    """A kernel with another mask than the model's."""

    def kernel(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        allowed: Tensor | None,
        scale: float,
        bias: Tensor | None,
    ) -> Tensor:
        other = mask(q.shape[-2])
        if bias is not None:
            return attend(q, k, v, other, scale, bias)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=other, scale=scale)

    return kernel


def put_kernel(subject: Subject, layer: int, kernel: Kernel) -> None:
    """Exchange the attention kernel of one layer."""
    attention = subject.module(layer, subject.layout.attention)
    called = _hf_call(kernel) if subject.layout.is_hf else _torch_call(kernel)
    edit = Edit(subject.layout.kernel, "attend", kind="callee")
    rewrite(attention, edit, names={"attend": called})


def _allowed(mask: Tensor | None, is_causal: bool, tokens: int) -> Tensor | None:
    if mask is None:
        return causal(tokens) if is_causal else None
    return mask if mask.dtype == torch.bool else mask > -1.0


def _repeated(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values of groups, once per head."""
    times = q.shape[1] // k.shape[1]
    return k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)


def _hf_call(kernel: Kernel) -> Callable[..., tuple[Tensor, None]]:
    def call(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        position_bias: Tensor | None = None,
        **more: Any,
    ) -> tuple[Tensor, None]:
        key, value = _repeated(query, key, value)
        is_causal = bool(getattr(module, "is_causal", False))
        allowed = _allowed(attention_mask, is_causal, query.shape[-2])
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        out = kernel(query, key, value, allowed, scale, position_bias)
        return out.transpose(1, 2).contiguous(), None

    return call


def _torch_call(kernel: Kernel) -> Callable[..., Tensor]:
    def call(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        k, v = _repeated(q, k, v)
        allowed = _allowed(attn_mask, is_causal, q.shape[-2])
        return kernel(q, k, v, allowed, q.shape[-1] ** -0.5 if scale is None else scale, None)

    return call
