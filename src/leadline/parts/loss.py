"""Cross-entropy of a linear head, without ever holding all logits.

    loss = mean over targets of log sum_j exp(z_j) - z_y,        z = W x + b
    d loss / d z = (softmax(z) - e_y) / count

The tokens are taken a few at a time, so that the logits of one piece stay in the cache, and the
gradients with respect to x, W and b are made on the way: the backward pass only scales them. The
reference beside it is `torch.nn.functional.cross_entropy`. Second derivatives are not available;
compute them from the logits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["IGNORED", "linear_cross_entropy"]

IGNORED = -100
"""The target of a token that is not counted."""
PIECE = 1 << 20
"""How many logits are held at a time: 4 MiB of float32."""
ROWS = 128
"""But at least so many tokens: each piece passes once over the whole gradient of W."""


def linear_cross_entropy(
    x: Tensor, weight: Tensor, targets: Tensor, *, bias: Tensor | None = None
) -> Tensor:
    """The mean cross-entropy of x [token, width] under the head. No target at all gives NaN.

    Under autocast the products are in its number type; sums over the vocabulary never are.
    """
    counted = (targets != IGNORED).nonzero().squeeze(1)
    if counted.numel() != targets.numel():
        x, targets = x[counted], targets[counted]
    kind = x.dtype
    if torch.is_autocast_enabled(x.device.type):
        kind = torch.get_autocast_dtype(x.device.type)
    bias = None if bias is None else bias.to(kind)
    with torch.autocast(x.device.type, enabled=False):
        return _Streamed.apply(x.to(kind), weight.to(kind), bias, targets)  # pyright: ignore[reportReturnType]


class _Streamed(torch.autograd.Function):
    """Gradients are made of softmax(z) - e_y and divided by the count only in the backward pass:
    a share of a half-precision mean would be lost."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor
    ) -> Tensor:
        wants_x, wants_weight, wants_bias, _ = ctx.needs_input_grad
        wide = torch.promote_types(x.dtype, torch.float32)
        total = torch.zeros((), dtype=wide, device=x.device)
        grad_x = torch.empty_like(x) if wants_x else None
        grad_weight = torch.zeros_like(weight, dtype=wide) if wants_weight else None
        grad_bias = torch.zeros_like(bias, dtype=wide) if bias is not None and wants_bias else None
        rows = max(ROWS, PIECE // weight.shape[0])
        for start in range(0, len(x), rows):
            piece, labels = x[start : start + rows], targets[start : start + rows].unsqueeze(1)
            logits = F.linear(piece, weight, bias).to(wide)
            label_logits = logits.gather(1, labels)
            largest = logits.amax(1, keepdim=True)
            logits.sub_(largest).exp_()
            mass = logits.sum(1, keepdim=True)
            total += (mass.log() + largest - label_logits).sum()
            if grad_x is None and grad_weight is None and grad_bias is None:
                continue
            logits.div_(mass).scatter_add_(1, labels, torch.full_like(label_logits, -1.0))
            slope = logits.to(x.dtype)
            if grad_x is not None:
                torch.mm(slope, weight, out=grad_x[start : start + rows])
            if grad_weight is not None:
                if wide == x.dtype:
                    grad_weight.addmm_(slope.t(), piece)
                else:
                    grad_weight += slope.t() @ piece
            if grad_bias is not None:
                grad_bias += logits.sum(0)
        ctx.save_for_backward(grad_x, grad_weight, grad_bias)
        ctx.count, ctx.kind = len(x), x.dtype
        return total / len(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        share = upstream / ctx.count
        gradients = (None if g is None else (g * share).to(ctx.kind) for g in ctx.saved_tensors)
        return *gradients, None
