"""Put a model back exactly as it was after measuring it.

Inside `with untouched(model):` the model is in eval mode with its parameters' gradients set
aside. Afterwards, also after an exception, the training flags, `requires_grad`, gradients, buffers
and random states (torch, `random`, numpy) are the very ones of before. Hooks are removed by those
who set them.

The plain attributes of modules are put back as well: tensors, numbers, strings, lists, dictionaries
and the like, with what is inside of them. Recurrent models keep their state in them, some with the
graph of the last pass behind it, and positions that grow with the text keep how far they have come.
What stands under a new name is taken away again. Objects of other classes are left as they are, and
so is what is kept outside of the modules.

Weights and buffers that inference mode made cannot take part in autograd; ordinary copies stand in
for them inside the `with` block.

A measurement enters dozens of times, so a model is walked through once here, past the slow ways of
`nn.Module`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from leadline.anatomy.kept_values import is_plain, remember, remember_tensor

__all__ = ["untouched"]

_MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))
"""The attributes that every module has: its parameters, buffers, children, hooks and flags."""
_MISSING = object()


@contextmanager
def untouched(model: nn.Module, *, evaluate: bool = True) -> Iterator[None]:
    """Put everything back as it was: flags, gradients, buffers, plain attributes, random state.

    Compiled regions run eagerly inside the `with` block: hooks do not fire in a compiled graph.
    """
    modules = list(_modules(model))
    with ExitStack() as stack:
        _ordinary(modules, stack)
        _keep_randomness(stack)
        stack.callback(_put_back_flags, [(one, one.training) for one in modules])
        stack.callback(_put_back_attributes, [_Attributes(one) for one in modules])
        _keep_parameters(modules, stack)
        _keep_buffers(modules, stack)
        if evaluate:
            _evaluate(model, modules)
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield


def _modules(model: nn.Module) -> Iterator[nn.Module]:
    """The module and all that are inside of it, each once."""
    seen: set[int] = set()
    waiting = [model]
    while waiting:
        module = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield module
        waiting += [child for child in module._modules.values() if child is not None]


def _evaluate(model: nn.Module, modules: list[nn.Module]) -> None:
    kinds = {type(one) for one in modules}
    if all(one.train is nn.Module.train and one.eval is nn.Module.eval for one in kinds):
        _put_back_flags([(one, False) for one in modules])
    else:
        model.eval()  # in its own way


def _put_back_flags(flags: list[tuple[nn.Module, bool]]) -> None:
    for module, training in flags:
        table = vars(module)
        if "training" not in table:  # of TorchScript
            module.training = training
        elif table["training"] is not training:
            table["training"] = training


def _ordinary(modules: list[nn.Module], stack: ExitStack) -> None:
    """Let ordinary copies stand in for tensors that inference mode made.

    Autograd keeps no such tensor, and none can be told to require a gradient.
    """
    copies: dict[int, torch.Tensor] = {}
    for module in modules:
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
    stack.callback(random.setstate, random.getstate())
    stack.callback(np.random.set_state, np.random.get_state(legacy=False))
    stack.callback(torch.random.set_rng_state, torch.random.get_rng_state())
    if torch.cuda.is_initialized():
        stack.callback(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all())


def _keep_parameters(modules: list[nn.Module], stack: ExitStack) -> None:
    """Set gradients aside, and the hooks that wait for one: an optimizer may step in them."""
    kept: dict[int, tuple[nn.Parameter, torch.Tensor | None, bool]] = {}
    hooked: list[tuple[Any, dict[Any, Any]]] = []
    for module in modules:
        for parameter in module._parameters.values():
            if parameter is None or id(parameter) in kept:
                continue
            kept[id(parameter)] = (parameter, parameter.grad, parameter.requires_grad)
            hooks: Any = parameter._post_accumulate_grad_hooks
            if hooks:
                hooked.append((hooks, dict(hooks)))
    stack.callback(_put_back_parameters, kept, hooked)
    for parameter, gradient, _ in kept.values():
        if gradient is not None:
            parameter.grad = None
    for hooks, _ in hooked:
        hooks.clear()


def _put_back_parameters(
    kept: dict[int, tuple[nn.Parameter, torch.Tensor | None, bool]],
    hooked: list[tuple[Any, dict[Any, Any]]],
) -> None:
    for parameter, gradient, trained in kept.values():
        if parameter.requires_grad is not trained:
            parameter.requires_grad_(trained)
        if parameter.grad is not gradient:
            parameter.grad = gradient
    for hooks, before in hooked:
        hooks.clear()
        hooks.update(before)


def _keep_buffers(modules: list[nn.Module], stack: ExitStack) -> None:
    contents: list[Callable[[], None]] = []
    kept: list[tuple[Any, str, torch.Tensor]] = []
    seen: set[int] = set()
    for module in modules:
        for name, buffer in module._buffers.items():
            if buffer is None:
                continue
            kept.append((module._buffers, name, buffer))
            if id(buffer) not in seen:
                seen.add(id(buffer))
                remember_tensor(buffer, contents)
    stack.callback(_put_back_buffers, kept)
    stack.callback(_run_all, contents)


def _put_back_buffers(kept: list[tuple[Any, str, torch.Tensor]]) -> None:
    for table, name, buffer in kept:
        if table.get(name) is not buffer:
            table[name] = buffer


def _run_all(functions: list[Callable[[], None]]) -> None:
    with ExitStack() as stack:  # all of them, whichever fails
        for one in functions:
            stack.callback(one)


class _Attributes:
    """The plain values among the attributes that one module adds to nn.Module's."""

    __slots__ = ("contents", "module", "names", "values")

    def __init__(self, module: nn.Module) -> None:
        table = vars(module)
        self.module = module
        self.names = table.keys() - _MODULE_ATTRIBUTES
        self.contents: list[Callable[[], None]] = []
        self.values: list[tuple[str, Any]] = []
        for name in self.names:
            value = table[name]
            if is_plain(value):
                self.values.append((name, value))
            remember(value, self.contents)

    def put_back(self) -> None:
        """Give every name its value, and every value its content."""
        table = vars(self.module)
        if table.keys() - _MODULE_ATTRIBUTES != self.names:
            for name in table.keys() - _MODULE_ATTRIBUTES - self.names:
                if is_plain(table[name]):
                    del table[name]
        for name, value in self.values:
            if table.get(name, _MISSING) is value:
                continue
            # What has become a parameter, a buffer or a child is in another table, and stays there.
            if name in table or not hasattr(self.module, name):
                table[name] = value
        if self.contents:
            _run_all(self.contents)


def _put_back_attributes(attributes: list[_Attributes]) -> None:
    with ExitStack() as stack:
        for one in reversed(attributes):
            stack.callback(one.put_back)
