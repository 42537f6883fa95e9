"""Edits of tensors: scaled, shifted, copied, redrawn, transposed, tied, trained again."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from leadline.anatomy import configured_model
from leadline.instruments.visit.remedies.edit import EDITS, EditError, module_at, tensor_at


@EDITS.register("scale-tensor")
@torch.no_grad()
def scale_tensor(model: nn.Module, *, parameter: str, factor: float) -> None:
    """Multiply a tensor by a number."""
    tensor_at(model, parameter).mul_(factor)


@EDITS.register("scale-tensors")
@torch.no_grad()
def scale_tensors(model: nn.Module, *, parameters: Sequence[str], factor: float) -> None:
    """Multiply several tensors by one number; tensors that are one object are scaled once."""
    for tensor in {id(t): t for t in (tensor_at(model, path) for path in parameters)}.values():
        tensor.mul_(factor)


@EDITS.register("rescale-initialisation")
def rescale_initialisation(
    model: nn.Module, *, parameters: Sequence[str], factor: float, name: str, value: float
) -> None:
    """Multiply tensors by one number, and let the configuration ask for the spread that they then have."""
    config = getattr(configured_model(model), "config", None)
    config = getattr(config, "get_text_config", lambda: config)()
    if not hasattr(config, name):
        raise EditError(
            f"The remedy sets {name}, and the configuration of {type(model).__name__} has none."
        )
    setattr(config, name, value)
    scale_tensors(model, parameters=parameters, factor=factor)


@EDITS.register("shift-tensor")
@torch.no_grad()
def shift_tensor(model: nn.Module, *, parameter: str, by: float) -> None:
    """Add a number to every entry of a tensor."""
    tensor_at(model, parameter).add_(by)


@EDITS.register("shift-tensors")
@torch.no_grad()
def shift_tensors(model: nn.Module, *, parameters: Sequence[str], by: float) -> None:
    """Add a number to every entry of several tensors."""
    for path in parameters:
        tensor_at(model, path).add_(by)


@EDITS.register("fill-tensor")
@torch.no_grad()
def fill_tensor(model: nn.Module, *, parameter: str, value: float) -> None:
    """Set every entry of a tensor to one number."""
    tensor_at(model, parameter).fill_(value)


@EDITS.register("fill-tensors")
@torch.no_grad()
def fill_tensors(model: nn.Module, *, parameters: Sequence[str], value: float) -> None:
    """Set every entry of several tensors to one number."""
    for path in parameters:
        tensor_at(model, path).fill_(value)


@EDITS.register("copy-tensor")
@torch.no_grad()
def copy_tensor(model: nn.Module, *, parameter: str, source: str) -> None:
    """Copy the values of another tensor of the same shape."""
    target, values = tensor_at(model, parameter), tensor_at(model, source)
    if target.shape != values.shape:
        raise EditError(
            f"'{source}' has the shape {tuple(values.shape)} and cannot be copied to "
            f"'{parameter}' of {tuple(target.shape)}."
        )
    target.copy_(values)


@EDITS.register("transpose-tensor")
@torch.no_grad()
def transpose_tensor(model: nn.Module, *, parameter: str) -> None:
    """Exchange the two axes of a square matrix."""
    tensor = tensor_at(model, parameter)
    if tensor.ndim != 2 or tensor.shape[0] != tensor.shape[1]:
        raise EditError(f"'{parameter}' is no square matrix, so it cannot be transposed in place.")
    tensor.copy_(tensor.T.clone())


@EDITS.register("redraw-tensor")
@torch.no_grad()
def redraw_tensor(model: nn.Module, *, parameter: str, std: float, mean: float = 0.0) -> None:
    """Draw a tensor again from a normal distribution, by a seed of its name."""
    tensor = tensor_at(model, parameter)
    generator = torch.Generator().manual_seed(sum(parameter.encode()))
    drawn = torch.randn(tensor.shape, generator=generator) * std + mean
    tensor.copy_(drawn.to(tensor))


@EDITS.register("redraw-tensors")
def redraw_tensors(model: nn.Module, *, parameters: Sequence[str], std: float) -> None:
    """Draw several tensors again, each by a seed of its name."""
    for path in parameters:
        redraw_tensor(model, parameter=path, std=std)


@EDITS.register("tie")
def tie(model: nn.Module, *, parameter: str, to: str) -> None:
    """Let one parameter be another: both names mean one tensor from then on."""
    path, _, name = parameter.rpartition(".")
    target = tensor_at(model, to)
    if tensor_at(model, parameter).shape != target.shape:
        raise EditError(f"'{parameter}' and '{to}' have different shapes and cannot be tied.")
    setattr(module_at(model, path), name, target)


@EDITS.register("require-gradient")
def require_gradient(model: nn.Module, *, parameters: Sequence[str]) -> None:
    """Let parameters be trained again."""
    for path in parameters:
        tensor_at(model, path).requires_grad_(True)
