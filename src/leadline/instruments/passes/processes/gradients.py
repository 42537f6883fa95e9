"""Norms of the gradients of the whole batch, of parameters that are replicated or spread.

data parallelism     gradients of the shares of the loss are added up, one tensor after the other
FSDP2                has added them up and divided by the number of processes: norms of the parts
                     are put together by their squares, and multiplied by that number
tensor parallelism   each process has its part of the gradient of the whole; what is replicated
                     counts once
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import nn

from leadline.anatomy.spread import is_addend, is_counted, is_spread, local_part, whole
from leadline.instruments.passes.processes.convoy import Convoy
from leadline.numerics.devices import widest_float
from leadline.numerics.tokens import row_norms

__all__ = ["gradient_norm", "whole_norms"]

Tensor = torch.Tensor


def gradient_norm(gradient: Tensor) -> Tensor:
    """The Euclidean norm; by rows first, because one long float32 sum is biased."""
    rows = row_norms(gradient) if gradient.ndim else gradient
    return torch.linalg.vector_norm(rows.to(widest_float(rows.device)))


def whole_norms(
    module: nn.Module, names: Collection[str], convoy: Convoy, group: Any = None
) -> dict[str, Tensor]:
    """The gradient norm of every parameter of `names` over all processes, after a backward pass."""
    gradients = {
        name: parameter.grad
        for name, parameter in module.named_parameters()
        if name in names and parameter.grad is not None
    }
    convoy.agree("the gradients")
    if convoy.sharding == "replicated":
        return _added_up(module, gradients, convoy, group)
    plain = {name for name, one in gradients.items() if not is_spread(one)}
    if convoy.sharding == "fsdp" and plain:  # parameters that were left out of fully_shard
        return _added_up(module, {name: gradients[name] for name in plain}, convoy, None) | (
            _put_together({n: g for n, g in gradients.items() if n not in plain}, convoy)
        )
    return _put_together(gradients, convoy)


def _added_up(
    module: nn.Module, gradients: dict[str, Tensor], convoy: Convoy, group: Any
) -> dict[str, Tensor]:
    told = convoy.exchange("the names of gradients", {"names": sorted(gradients)})
    norms: dict[str, Tensor] = {}
    for name in sorted({name for one in told for name in one["names"]}):
        # A process may have none: an expert that none of its tokens went to.
        own = gradients.get(name)
        total = torch.zeros_like(module.get_parameter(name)) if own is None else own.clone()
        convoy.add_up([total], group)
        norms[name] = gradient_norm(total)
    return norms


def _put_together(gradients: dict[str, Any], convoy: Convoy) -> dict[str, Tensor]:
    squares: dict[str, float] = {}
    with convoy.guarded():
        for name, gradient in gradients.items():
            factor = 1.0
            if is_spread(gradient) and convoy.sharding == "fsdp":
                factor = float(gradient.device_mesh.size())
            # What is still to be added up is whole afterwards, in every process.
            known = whole(gradient) if is_addend(gradient) else gradient
            if is_counted(known, first=convoy.main):
                squares[name] = (factor * float(gradient_norm(local_part(known)))) ** 2
    told = convoy.exchange("the gradient norms", {"squares": squares})
    names = {name: None for one in told for name in one["squares"]}
    return {
        name: torch.tensor(
            sum(one["squares"].get(name, 0.0) for one in told), dtype=torch.float64
        ).sqrt()
        for name in names
    }
