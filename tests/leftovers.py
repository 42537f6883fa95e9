"""What a watch may have left behind: hooks on a model or an optimizer, and exchanged functions of torch."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim import optimizer as torch_optimizer
from torch.overrides import _get_current_function_mode_stack

__all__ = ["leftovers"]


def _exchanged():
    return {
        "backward": torch.autograd.backward,
        "the engine": torch.autograd._engine_run_backward,
        "scale": torch.amp.GradScaler.scale,
        "update": torch.amp.GradScaler.update,
        "hooks of TorchScript": torch.jit._recursive.get_hook_stubs,
    }


_ORIGINALS = _exchanged()


def leftovers(model: nn.Module, optimizer: Optimizer) -> list[str]:
    """Where something still stands."""
    found = [
        f"{name or 'model'}.{kind}"
        for name, module in model.named_modules()
        for kind, hooks in vars(module).items()
        if kind.endswith(("_hooks", "_with_kwargs", "_always_called")) and hooks
    ]
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            found.append(name)
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        found.append("optimizer")
    if torch_optimizer._global_optimizer_pre_hooks or torch_optimizer._global_optimizer_post_hooks:
        found.append("every optimizer")
    if _get_current_function_mode_stack():
        found.append("a function mode")
    return found + [name for name, one in _exchanged().items() if one is not _ORIGINALS[name]]
