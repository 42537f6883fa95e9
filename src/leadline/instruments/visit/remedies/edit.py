"""An edit changes one thing in a copy of a model, by the data that a remedy holds.

To add one, put one decorator on a function of the model and the arguments of the edit:

    @EDITS.register("scale-tensor")
    def scale_tensor(model: nn.Module, *, parameter: str, factor: float) -> None: ...

An edit changes the model in place; whoever applies it hands over a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from leadline.catalog import Catalog
from leadline.errors import LeadlineError

__all__ = ["EDITS", "EditError", "module_at", "set_module", "tensor_at"]

EDITS: Catalog[Callable[..., Any]] = Catalog(
    "edit", package="leadline.instruments.visit.remedies", folders="edits"
)
"""Every edit by its name."""


class EditError(LeadlineError):
    """A remedy that cannot be applied to this model."""


def module_at(model: nn.Module, path: str) -> nn.Module:
    """The module of this path; the model itself for an empty one."""
    try:
        return model.get_submodule(path)
    except AttributeError as error:
        raise EditError(
            f"The remedy changes the module '{path}', and {type(model).__name__} has none."
        ) from error


def tensor_at(model: nn.Module, path: str) -> torch.Tensor:
    """The parameter or buffer of this path."""
    tensors = dict(model.named_parameters(remove_duplicate=False))
    tensors |= dict(model.named_buffers(remove_duplicate=False))
    if path not in tensors:
        raise EditError(
            f"The remedy changes the tensor '{path}', and {type(model).__name__} has none."
        )
    return tensors[path]


def set_module(model: nn.Module, path: str, module: nn.Module) -> None:
    """Put a module in the place of another."""
    parent, _, name = path.rpartition(".")
    holder = module_at(model, parent)
    if isinstance(holder, nn.ModuleList | nn.Sequential):
        holder[int(name)] = module
    else:
        setattr(holder, name, module)
