"""Edits of how branches read and write the stream: skips, factors of updates, norms before branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from leadline.anatomy.tensors import first_tensor, stream_input
from leadline.instruments.visit.remedies.edit import EDITS, EditError, module_at, set_module


@EDITS.register("add-residuals")
def add_residuals(
    model: nn.Module,
    *,
    modules: Sequence[str],
    reads: Sequence[str | None],
    factor: float = 1.0,
) -> None:
    """Add the stream to what several branches return, as `add-residual` does for one."""
    for module, reader in zip(modules, reads, strict=True):
        EDITS.get("add-residual")(model, module=module, reads=reader, factor=factor)


class _ScalesOutput(nn.Module):
    """Multiplies what a branch returns."""

    def __init__(self, inner: nn.Module, factor: float) -> None:
        super().__init__()
        self.inner = inner
        self.factor = factor

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = self.inner(*args, **kwargs)
        if isinstance(output, tuple):
            return (output[0] * self.factor, *output[1:])
        return output * self.factor


@EDITS.register("scale-updates")
def scale_updates(model: nn.Module, *, modules: Sequence[str], factor: float) -> None:
    """Multiply what branches return by a number."""
    for path in modules:
        set_module(model, path, _ScalesOutput(module_at(model, path), factor))


class _NormsInput(nn.Module):
    """Calls a branch on its normed input."""

    def __init__(self, inner: nn.Module, norm: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.norms = [norm]  # in a list: the norm has its owner in the block

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        stream = stream_input(args, kwargs)
        if stream is None:
            raise EditError("The branch takes in no stream that could be normed.")
        normed = first_tensor(self.norms[0](stream))

        def change(value: Any) -> Any:
            return normed if isinstance(value, torch.Tensor) and value is stream else value

        return self.inner(
            *map(change, args), **{name: change(value) for name, value in kwargs.items()}
        )


@EDITS.register("add-norms")
def add_norms(model: nn.Module, *, modules: Sequence[str], norms: Sequence[str]) -> None:
    """Let branches read the stream through norms that the model has and does not call."""
    for module, norm in zip(modules, norms, strict=True):
        set_module(model, module, _NormsInput(module_at(model, module), module_at(model, norm)))
