"""The carried pass against an undisturbed one: they must be the same forward pass.

A carried tensor takes the stream's place in code that was not written for it, and components of
another pass add up as well as those of the right one. So the model runs once more with nothing
exchanged, and for every token

    |x - x'| / |x'|     x carried, x' undisturbed

must be rounding, behind the last block and at the output. Attention runs as softmax and products
in both passes, so that the same numbers are computed in the same order: a fused kernel would
differ by its own rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from leadline.anatomy import Stack
from leadline.anatomy.tensors import first_tensor
from leadline.instruments.paths.carried.carried import Carried
from leadline.instruments.paths.carried.model_pass import plain_kernels

__all__ = ["apart", "undisturbed"]

Tensor = torch.Tensor


def undisturbed(
    model: nn.Module, stack: Stack, forward: Callable[[], Any]
) -> tuple[Tensor | None, Any]:
    """The stream behind the last block, and what the model returns, without anything exchanged."""
    streams: list[Tensor | None] = []

    def hook(module: nn.Module, args: Any, output: object) -> None:
        stream = first_tensor(output)
        streams.append(None if stream is None else stream.detach().clone())

    last = model.get_submodule(stack.blocks[-1].module)
    handle = last.register_forward_hook(hook)
    try:
        with torch.no_grad(), plain_kernels():
            output = forward()
    finally:
        handle.remove()
    return (streams[-1] if streams else None), output


def apart(one: Tensor, other: Tensor) -> float:
    """The largest over tokens of |x - x'| / |x'|; infinite where they cannot be compared."""
    x, y = (t.value if isinstance(t, Carried) else t for t in (one, other))
    if x.shape != y.shape:
        return float("inf")
    x, y = x.double(), y.double()
    size = torch.linalg.vector_norm(y, dim=-1)
    miss = torch.linalg.vector_norm(x - y, dim=-1)
    if not bool(torch.isfinite(miss).all()):
        return 0.0 if torch.equal(x.nan_to_num(), y.nan_to_num()) else float("inf")
    return float(torch.where(miss > 0, miss / size, 0.0).max()) if miss.numel() else 0.0
