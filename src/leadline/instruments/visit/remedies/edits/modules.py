"""Edits of modules: an attribute, a constant, a skip, layers that share one module, the mode."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from leadline.anatomy import configured_model
from leadline.anatomy.tensors import first_tensor, stream_input
from leadline.instruments.visit.checks.norms import EPS_NAMES
from leadline.instruments.visit.remedies.edit import EDITS, EditError, module_at, set_module
from leadline.instruments.visit.twin import NoTwin, build_twin


@EDITS.register("set-attribute")
def set_attribute(model: nn.Module, *, module: str, attribute: str, value: Any) -> None:
    """Set a number or a flag of a module."""
    target = module_at(model, module)
    if not hasattr(target, attribute):
        raise EditError(f"'{module}' ({type(target).__name__}) has no attribute '{attribute}'.")
    setattr(target, attribute, value)


@EDITS.register("set-attributes")
def set_attributes(model: nn.Module, *, modules: Sequence[str], attribute: str, value: Any) -> None:
    """Set the same number or flag of several modules."""
    for path in modules:
        set_attribute(model, module=path, attribute=attribute, value=value)


@EDITS.register("set-eps")
def set_eps(model: nn.Module, *, modules: Sequence[str], value: float) -> None:
    """Set the eps of several norms, whatever their classes call it."""
    for path in modules:
        norm = module_at(model, path)
        name = next((name for name in EPS_NAMES if hasattr(norm, name)), EPS_NAMES[0])
        set_attribute(model, module=path, attribute=name, value=value)


@EDITS.register("eval-mode")
def eval_mode(model: nn.Module) -> None:
    """Switch the model, and everything in it, to evaluation."""
    model.eval()


class _RemembersInput(nn.Module):
    """Calls a module and remembers what entered it: the stream before a norm."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.entered: torch.Tensor | None = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.entered = stream_input(args, kwargs)
        return self.inner(*args, **kwargs)


class _AddsStream(nn.Module):
    """Adds the remembered stream, times a factor, to what a branch returns."""

    def __init__(self, inner: nn.Module, reader: _RemembersInput | None, factor: float) -> None:
        super().__init__()
        self.inner = inner
        self.readers = [] if reader is None else [reader]  # in a list: no second owner
        self.stream_factor = factor
        """What the survey of blocks reads: x is in the output with this factor."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = self.inner(*args, **kwargs)
        reader = self.readers[0] if self.readers else None
        entered = stream_input(args, kwargs) if reader is None else reader.entered
        update = first_tensor(output)
        assert entered is not None and update is not None
        added = update + self.stream_factor * entered
        if isinstance(output, tuple):
            return (added, *output[1:])
        return added


@EDITS.register("add-residual")
def add_residual(
    model: nn.Module, *, module: str, reads: str | None = None, factor: float = 1.0
) -> None:
    """Add the stream to what a branch returns; it is what enters `reads`, else the branch itself."""
    reader: _RemembersInput | None = None
    if reads is not None and reads != module:
        reader = _RemembersInput(module_at(model, reads))
        set_module(model, reads, reader)
    set_module(model, module, _AddsStream(module_at(model, module), reader, factor))


@EDITS.register("unshare-layers")
def unshare_layers(model: nn.Module, *, modules: Sequence[str]) -> None:
    """Give every layer a module of its own, with weights drawn anew from the spread of the shared.

    Layers that are one module have one path; then it is every place where that module stands.
    """
    first, *others = dict.fromkeys(modules)
    if not others:
        shared = module_at(model, first)
        named = model.named_modules(remove_duplicate=False)
        others = [path for path, one in named if one is shared and path != first]
    if not others:
        raise EditError(
            f"'{first}' is one module that is called again: there is no second to part."
        )
    for number, path in enumerate(others, start=1):
        fresh = copy.deepcopy(module_at(model, path))
        generator = torch.Generator().manual_seed(number)
        with torch.no_grad():
            for parameter in fresh.parameters():
                if parameter.ndim > 1:
                    drawn = torch.randn(parameter.shape, generator=generator).to(parameter)
                    parameter.copy_(drawn * parameter.std() + parameter.mean())
        set_module(model, path, fresh)


@EDITS.register("redraw-model")
def redraw_model(model: nn.Module, *, seed: int = 0) -> None:
    """Draw all weights again, as the class of the model draws them from its configuration."""
    try:
        twin = build_twin(model, seed)
    except NoTwin as error:
        raise EditError(f"The weights cannot be drawn again: {error}.") from error
    model.load_state_dict(twin.state_dict())


@EDITS.register("cast")
def cast(model: nn.Module, *, dtype: str) -> None:
    """Change the number type of all weights."""
    model.to(getattr(torch, dtype))


@EDITS.register("copy-buffer")
@torch.no_grad()
def copy_buffer(model: nn.Module, *, buffer: str) -> None:
    """Set a constant of the design to what the configuration makes it: a buffer, or a plain number."""
    try:
        twin = build_twin(model)
    except NoTwin as error:
        raise EditError(f"'{buffer}' cannot be computed again: {error}.") from error
    # A twin is built of the configured model, which may stand inside of the one that was given.
    path, _, name = buffer.rpartition(".")
    configured = configured_model(model)
    prefix = next(place for place, one in model.named_modules() if one is configured)
    holder = module_at(model, path)
    source = module_at(twin, path[len(prefix) :].lstrip("."))
    if not hasattr(holder, name) or not hasattr(source, name):
        raise EditError(f"'{path}' ({type(holder).__name__}) has no buffer '{name}'.")
    target, value = getattr(holder, name), getattr(source, name)
    if isinstance(target, torch.Tensor):
        target.copy_(value)
    else:
        setattr(holder, name, value)
