"""What a Lightning training step calls, and what a batch says about itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from leadline.errors import InputError

__all__ = ["called_module", "ids_in", "optimizers_of"]

_IDS = ("id", "ids", "index", "indices", "idx", "example_id", "sample_id", "uid", "guid")
"""Under these names a batch may say which examples it holds."""


def called_module(module: nn.Module, path: str | None) -> nn.Module:
    """Return the module that a training step calls: the one named, the only child, or the module.

    A training step may call `self(...)` or `self.model(...)`. An only child with parameters is called
    either way. Where there are several, `forward` has to be called or one to be named; without a
    `forward` it is the largest one.
    """
    if path is not None:
        try:
            return module.get_submodule(path)
        except AttributeError as error:
            raise InputError(
                f"module is {path!r}, and {type(module).__name__} has no module of that name."
            ) from error
    children = [child for child in module.children() if _count(child)]
    if len(children) == 1 and not any(True for _ in module.parameters(recurse=False)):
        return children[0]
    if not children or _says_forward(module):
        return module
    return max(children, key=_count)


def optimizers_of(module: nn.Module, optimizers: Sequence[Any]) -> list[Any]:
    """Return the optimizers that hold a parameter of a module; all of them where none does."""
    ours = {id(one) for one in module.parameters()}
    holding = [
        optimizer
        for optimizer in optimizers
        if any(id(one) in ours for group in optimizer.param_groups for one in group["params"])
    ]
    return holding or list(optimizers)


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _says_forward(module: nn.Module) -> bool:
    """Whether a class has a forward of its own; that of Lightning only says that there is none."""
    maker = next(one for one in type(module).__mro__ if "forward" in vars(one))
    return maker.__module__.partition(".")[0] not in {"lightning", "pytorch_lightning", "torch"}


def ids_in(batch: Any) -> str:
    """Return what a batch says about which examples it holds, empty where it says nothing."""
    if not isinstance(batch, Mapping):
        return ""
    for name in _IDS:
        ids = batch.get(name)
        if ids is not None:
            return f"{name} {ids.tolist() if isinstance(ids, Tensor) else ids}"
    return ""
