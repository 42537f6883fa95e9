"""Measuring leaves no trace.

Inside `with untouched(model):` the model is in eval mode with its parameters' gradients set
aside. Afterwards, also after an exception, the training flags, `requires_grad`, gradients,
buffers and random state are the very ones of before. Hooks are removed by those who set them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

__all__ = ["untouched", "unwrapped"]


def unwrapped(model: nn.Module) -> nn.Module:
    """The module inside a `torch.compile` or data-parallel wrapper."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(
            model, (nn.DataParallel, nn.parallel.DistributedDataParallel)
        ):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


@contextmanager
def untouched(model: nn.Module, *, evaluate: bool = True) -> Iterator[None]:
    """Put everything back as it was: flags, gradients, buffers, random state.

    Compiled regions run eagerly meanwhile: hooks do not fire inside a compiled graph.
    """
    training = [(module, module.training) for module in model.modules()]
    parameters = [(p, p.requires_grad, p.grad) for p in model.parameters()]
    buffers = [
        (module, name, buffer, buffer.detach().clone(), buffer._version)
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
    ]
    cpu_state = torch.random.get_rng_state()
    cuda_states = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    try:
        if evaluate:
            model.eval()
        for parameter, _, _ in parameters:
            parameter.grad = None
        with torch.compiler.set_stance("force_eager"):
            yield
    finally:
        for module, flag in training:
            module.training = flag
        for parameter, requires_grad, grad in parameters:
            parameter.requires_grad_(requires_grad)
            parameter.grad = grad
        with torch.no_grad():
            for module, name, buffer, saved, version in buffers:
                if buffer._version != version:
                    buffer.copy_(saved)
                if module._buffers.get(name) is not buffer:
                    module._buffers[name] = buffer
        torch.random.set_rng_state(cpu_state)
        if cuda_states:
            torch.cuda.set_rng_state_all(cuda_states)
