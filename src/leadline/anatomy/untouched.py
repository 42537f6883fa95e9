"""Measuring leaves no trace.

Inside `with untouched(model):` the model is in eval mode with its parameters' gradients set
aside. Afterwards, also after an exception, the training flags, `requires_grad`, gradients,
buffers and random state are the very ones of before. Hooks are removed by those who set them.

So are the plain attributes of modules that are tensors, numbers or None: recurrent models keep their
state in them, some with the graph of the last pass behind it, and positions that grow with the text
keep how far they have come. A tensor or a number under a new name is taken away again. Lists,
dictionaries and objects are left as they are, and so is what is kept outside of the modules.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

__all__ = ["untouched"]

_OWN = frozenset(vars(nn.Module()))
"""The attributes that every module has: its parameters, buffers, children, hooks and flags."""


@contextmanager
def untouched(model: nn.Module, *, evaluate: bool = True) -> Iterator[None]:
    """Put everything back as it was: flags, gradients, buffers, plain attributes, random state.

    Compiled regions run eagerly meanwhile: hooks do not fire inside a compiled graph.
    """
    training = [(module, module.training) for module in model.modules()]
    parameters = [(p, p.requires_grad, p.grad) for p in model.parameters()]
    buffers = [
        (module, name, buffer, buffer.detach().clone(), buffer._version)
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
    ]
    plain = [_Plain(module) for module in model.modules()]
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
        for attributes in plain:
            attributes.put_back()
        torch.random.set_rng_state(cpu_state)
        if cuda_states:
            torch.cuda.set_rng_state_all(cuda_states)


class _Plain:
    """The tensors, numbers and Nones that one module keeps under names of its own."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.names = frozenset(vars(module))
        self.values = self._found()
        self.contents = [
            (tensor, tensor.detach().clone(), tensor._version)
            for tensor in self.values.values()
            # A tensor of inference mode counts no versions.
            if isinstance(tensor, torch.Tensor) and not tensor.is_inference()
        ]

    def put_back(self) -> None:
        table = vars(self.module)
        for name in self._found():
            if name not in self.names:
                del table[name]
        for name, value in self.values.items():
            # What has become a parameter, a buffer or a child is in another table, and stays there.
            if name in table or not hasattr(self.module, name):
                table[name] = value
        with torch.no_grad():
            for tensor, saved, version in self.contents:
                if tensor._version != version:
                    tensor.copy_(saved)

    def _found(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in vars(self.module).items()
            if name not in _OWN and (value is None or isinstance(value, torch.Tensor | int | float))
        }
