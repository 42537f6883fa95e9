"""Put a model back exactly as it was after measuring it.

Inside `with untouched(model):` the model is in eval mode with its parameters' gradients set
aside. Afterwards, also after an exception, the training flags, `requires_grad`, gradients,
buffers and random state are the very ones of before. Hooks are removed by those who set them.

The plain attributes of modules that are tensors, numbers or None are put back as well: recurrent
models keep their state in them, some with the graph of the last pass behind it, and positions that
grow with the text keep how far they have come. A tensor or a number under a new name is taken away
again. Lists, dictionaries and objects are left as they are, and so is what is kept outside of the
modules.

Weights and buffers that inference mode made cannot take part in autograd; ordinary copies stand in
for them inside the `with` block.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

__all__ = ["untouched"]

_MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))
"""The attributes that every module has: its parameters, buffers, children, hooks and flags."""


@contextmanager
def untouched(model: nn.Module, *, evaluate: bool = True) -> Iterator[None]:
    """Put everything back as it was: flags, gradients, buffers, plain attributes, random state.

    Compiled regions run eagerly inside the `with` block: hooks do not fire in a compiled graph.
    """
    with ExitStack() as stack:
        _ordinary(model, stack)
        _keep_randomness(stack)
        for module in model.modules():
            stack.callback(setattr, module, "training", module.training)
            stack.callback(_PlainAttributes(module).put_back)
        for parameter in model.parameters():
            _keep_parameter(parameter, stack)
        for module in model.modules():
            for name, buffer in module.named_buffers(recurse=False):
                stack.callback(
                    _put_back, module, name, buffer, buffer.detach().clone(), buffer._version
                )
        if evaluate:
            model.eval()
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield


def _ordinary(model: nn.Module, stack: ExitStack) -> None:
    """Let ordinary copies stand in for tensors that inference mode made.

    Autograd keeps no such tensor, and none can be told to require a gradient.
    """
    copies: dict[int, torch.Tensor] = {}
    for module in model.modules():
        tables: list[Any] = [module._parameters, module._buffers, vars(module)]
        for table in tables:
            for name, tensor in table.items():
                if not isinstance(tensor, torch.Tensor) or not tensor.is_inference():
                    continue
                if id(tensor) not in copies:
                    with torch.inference_mode(False):
                        copy = tensor.detach().clone()
                        if isinstance(tensor, nn.Parameter):
                            copy = nn.Parameter(copy, requires_grad=tensor.requires_grad)
                    copies[id(tensor)] = copy
                stack.callback(_exchange, table, name, copies[id(tensor)], tensor)
                table[name] = copies[id(tensor)]


def _exchange(table: dict[str, Any], name: str, copy: torch.Tensor, tensor: torch.Tensor) -> None:
    if table.get(name) is copy:
        table[name] = tensor


def _keep_randomness(stack: ExitStack) -> None:
    stack.callback(torch.random.set_rng_state, torch.random.get_rng_state())
    if torch.cuda.is_initialized():
        stack.callback(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all())


def _keep_parameter(parameter: nn.Parameter, stack: ExitStack) -> None:
    """Set its gradient aside, and the hooks that wait for one: an optimizer may step in them."""
    stack.callback(setattr, parameter, "grad", parameter.grad)
    stack.callback(parameter.requires_grad_, parameter.requires_grad)
    parameter.grad = None
    hooks: dict[int, Any] | None = parameter._post_accumulate_grad_hooks
    if hooks:
        stack.callback(hooks.update, dict(hooks))
        stack.callback(hooks.clear)
        hooks.clear()


def _put_back(
    module: nn.Module, name: str, buffer: torch.Tensor, saved: torch.Tensor, version: int
) -> None:
    _restore(buffer, saved, version)
    if module._buffers.get(name) is not buffer:
        module._buffers[name] = buffer


def _restore(tensor: torch.Tensor, saved: torch.Tensor, version: int) -> None:
    """Give a tensor its content back. What is changed through `.data` counts no version."""
    with torch.no_grad():
        if tensor.shape != saved.shape or tensor.dtype != saved.dtype:
            tensor.data = saved
        elif tensor._version != version or not _is_same(tensor, saved):
            tensor.copy_(saved)


def _is_same(tensor: torch.Tensor, saved: torch.Tensor) -> bool:
    """Whether the content is the same, NaN for NaN; of what torch cannot compare, versions tell."""
    try:
        return torch.equal(tensor, saved) or bool(
            torch.isclose(tensor, saved, rtol=0.0, atol=0.0, equal_nan=True).all()
        )
    except NotImplementedError:  # a sparse tensor, one on meta, or one of four bits
        return True


class _PlainAttributes:
    """The tensors, numbers and Nones among the attributes that one module adds to nn.Module's."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.names = frozenset(vars(module))
        self.values = self._current()
        self.contents = [
            (tensor, tensor.detach().clone(), tensor._version)
            for tensor in self.values.values()
            # A tensor of inference mode counts no versions.
            if isinstance(tensor, torch.Tensor) and not tensor.is_inference()
        ]

    def put_back(self) -> None:
        table = vars(self.module)
        for name in self._current():
            if name not in self.names:
                del table[name]
        for name, value in self.values.items():
            # What has become a parameter, a buffer or a child is in another table, and stays there.
            if name in table or not hasattr(self.module, name):
                table[name] = value
        for tensor, saved, version in self.contents:
            _restore(tensor, saved, version)

    def _current(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in vars(self.module).items()
            if name not in _MODULE_ATTRIBUTES
            and (value is None or isinstance(value, torch.Tensor | int | float))
        }
