"""Check that a model can be measured: a module with values, whose modules take hooks.

Every model passes `check_module` where it enters: a class, a compiled graph or weights without
values would otherwise end in an error of torch somewhere inside.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from leadline.errors import InputError, shown

__all__ = ["check_measurable", "check_module"]


def check_module(model: Any) -> None:
    """Refuse anything that is not a torch module, and modules that cannot be inspected."""
    if isinstance(model, type):
        raise InputError(
            f"The class {model.__name__} was given as the model; give an instance of it, "
            f"{model.__name__}(...)."
        )
    if isinstance(model, torch.export.ExportedProgram):
        raise InputError(f"The model is exported by torch.export; {_THE_ORIGINAL}")
    if not isinstance(model, nn.Module):
        hint = "load it first with leadline.load(...)"
        if isinstance(getattr(model, "model", None), nn.Module):
            hint = "give its .model"
        raise InputError(f"The model is {shown(model)}, not a torch module; {hint}.")
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            where = f"The module '{name}'" if name else "The model"
            raise InputError(
                f"{where} is compiled by torch.jit, so hooks cannot see inside it; {_THE_ORIGINAL}"
            )


_THE_ORIGINAL = "give the module that it was made from."


def check_measurable(model: nn.Module) -> None:
    """Refuse a module that cannot be run or has weights without values."""
    kind = type(model).__name__
    # torch.export forbids both modes by putting functions of its own in their place.
    if isinstance(model, torch.fx.GraphModule) and "eval" in vars(model):
        raise InputError(f"The model is exported by torch.export; {_THE_ORIGINAL}")
    if type(model).forward is nn.Module.forward and "forward" not in vars(model):
        raise InputError(
            f"{kind} has no forward, so it cannot be run; give the module that calls it."
        )
    if (path := _offloaded(model)) is not None:
        where = f"of '{path}' " if path else ""
        raise InputError(
            f"The weights {where}are offloaded by accelerate (device_map, cpu_offload, disk_offload): "
            "they have values only while their module runs, and backward would keep all of them. "
            "Measure the checkpoint block by block, with leadline.load(FOLDER, stream=True) or "
            "--stream, or load it without a device_map."
        )
    tensors = [("parameter", *item) for item in model.named_parameters()]
    for what, name, tensor in [*tensors, *(("buffer", *item) for item in model.named_buffers())]:
        if is_lazy(tensor):
            raise InputError(
                f"The {what} '{name}' has no shape yet (a lazy module); run the model once first."
            )
        if tensor.is_meta:
            raise InputError(
                f"The {what} '{name}' is on the meta device and has no values; load or initialise "
                "the weights first."
            )


def _offloaded(model: nn.Module) -> str | None:
    """The first module whose weights accelerate takes away when it has run; None without one."""
    for path, module in model.named_modules():
        hook = getattr(module, "_hf_hook", None)
        if any(getattr(one, "offload", False) for one in (hook, *getattr(hook, "hooks", ()))):
            return path
    return None
