"""Put a model back exactly as it was after measuring it.

Inside `with untouched(model):` the model is in eval mode with its parameters' gradients set
aside. Afterwards, also after an exception, the training flags, `requires_grad`, gradients, buffers
and random states (torch, `random`, numpy) are the very ones of before. So are parameters, buffers
and children by name: what the model has made meanwhile is taken away again. Weights that it wrote
to have their content back, as far as `kept_weights` sees it. Hooks are removed by those who set
them.

The attributes of modules are put back as well: whatever stands under a name, with what is inside of
it (`kept_values`). Recurrent models keep their state in them, some with the graph of the last pass
behind it, and positions that grow with the text keep how far they have come. Modules that a model
hides in plain lists or in objects are put back like its own. What is kept outside of the modules
is left as it is.

Weights and buffers that inference mode made cannot take part in autograd; ordinary copies stand in
for them inside the `with` block.

A measurement enters dozens of times, so a model is walked through once here, past the slow ways of
`nn.Module`. Passes inside of it are our own (`own_passes`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from operator import is_
from typing import Any

import numpy as np
import torch
from torch import nn

from leadline.anatomy.eager import eagerly
from leadline.anatomy.kept_values import Memory, remember_tensor
from leadline.anatomy.kept_weights import KeptWeights
from leadline.anatomy.own_passes import own_passes

__all__ = ["untouched"]

_MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))
"""The attributes that every module has: its parameters, buffers, children, hooks and flags."""
_MISSING = object()


@contextmanager
def untouched(
    model: nn.Module, *others: nn.Module, evaluate: bool = True, hooks: bool = False
) -> Iterator[None]:
    """Put everything back as it was: flags, gradients, weights, buffers, attributes, random state.

    `others` are put back as well and stay in the mode they are in. With `hooks` so is what hooks on
    the modules have kept, in their closures or in objects that they belong to. Compiled regions run eagerly
    inside the `with` block: hooks do not fire in a compiled graph.
    """
    modules = list(_modules([model, *others]))
    with ExitStack() as stack:
        stack.enter_context(own_passes())
        _ordinary(modules, stack)
        _keep_randomness(stack)
        memory = Memory()
        tables = [_Tables(one, memory) for one in modules]
        for hidden in _modules(memory.modules, besides=modules):  # which may hide others
            modules.append(hidden)
            tables.append(_Tables(hidden, memory))
        for one in modules if hooks else ():
            for function in (*one._forward_pre_hooks.values(), *one._forward_hooks.values()):
                memory.remember_function(function)
        stack.callback(_put_back_flags, [(one, one.training) for one in modules])
        stack.callback(_run_all, memory.restores)
        stack.callback(_run_all, [one.put_back for one in tables])
        parameters = _parameters(modules, memory)
        kept = KeptWeights(parameters)
        if kept.begin():
            stack.callback(kept.put_back)
        _keep_gradients(parameters, stack)
        _keep_buffers(modules, stack)
        if evaluate:
            _evaluate(model, kept)
        stack.enter_context(eagerly())
        yield


def _modules(waiting: list[nn.Module], *, besides: Iterable[nn.Module] = ()) -> Iterator[nn.Module]:
    """Modules and all that are inside of them, each once; more may be added while this goes on."""
    met = set(map(id, besides))
    while waiting:
        module = waiting.pop()
        if id(module) in met:
            continue
        met.add(id(module))
        yield module
        waiting += [child for child in module._modules.values() if child is not None]


def _parameters(modules: list[nn.Module], memory: Memory) -> list[nn.Parameter]:
    found = {
        id(one): one for module in modules for one in module._parameters.values() if one is not None
    }
    return list((found | {id(one): one for one in memory.parameters}).values())


def _evaluate(model: nn.Module, kept: KeptWeights) -> None:
    modules = list(_modules([model]))
    kinds = {type(one) for one in modules}
    if all(one.train is nn.Module.train and one.eval is nn.Module.eval for one in kinds):
        _put_back_flags([(one, False) for one in modules])
    else:
        with kept.watching(always=True):  # in its own way, which may be to change its weights
            model.eval()


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


def _keep_gradients(parameters: list[nn.Parameter], stack: ExitStack) -> None:
    """Set gradients aside, and the hooks that wait for one: an optimizer may step in them."""
    kept = [(one, one.grad, one.requires_grad) for one in parameters]
    hooked: list[tuple[Any, dict[Any, Any]]] = []
    for parameter in parameters:
        hooks: Any = parameter._post_accumulate_grad_hooks
        if hooks:
            hooked.append((hooks, dict(hooks)))
    stack.callback(_put_back_gradients, kept, hooked)
    for parameter, gradient, _ in kept:
        if gradient is not None:
            parameter.grad = None
    for hooks, _ in hooked:
        hooks.clear()


def _put_back_gradients(
    kept: list[tuple[nn.Parameter, torch.Tensor | None, bool]],
    hooked: list[tuple[Any, dict[Any, Any]]],
) -> None:
    for parameter, gradient, trained in kept:
        if parameter.requires_grad is not trained:
            parameter.requires_grad_(trained)
        if parameter.grad is not gradient:
            parameter.grad = gradient
    for hooks, before in hooked:
        hooks.clear()
        hooks.update(before)


def _keep_buffers(modules: list[nn.Module], stack: ExitStack) -> None:
    contents: list[Callable[[], None]] = []
    buffers = {
        id(one): one for module in modules for one in module._buffers.values() if one is not None
    }
    for one in buffers.values():
        remember_tensor(one, contents)
    stack.callback(_run_all, contents)


def _run_all(functions: list[Callable[[], None]]) -> None:
    """Run all of them, whichever fails."""
    failure: BaseException | None = None
    for one in functions:
        try:
            one()
        except BaseException as error:
            failure = failure or error
    if failure is not None:
        raise failure


class _Tables:
    """What one module holds by name: parameters, buffers, children, and attributes of its own."""

    __slots__ = ("attributes", "module", "short_lived", "tables")

    def __init__(self, module: nn.Module, memory: Memory) -> None:
        state = vars(module)
        self.module = module
        self.tables: list[tuple[Any, list[str], list[Any]]] = [
            (table, list(table), list(table.values()))
            for table in (module._parameters, module._buffers, module._modules)
            if isinstance(table, dict)  # those of TorchScript are not
        ]
        self.short_lived = set(getattr(module, "_non_persistent_buffers_set", ()))
        self.attributes = {name: state[name] for name in state.keys() - _MODULE_ATTRIBUTES}
        for value in self.attributes.values():
            memory.remember(value)

    def put_back(self) -> None:
        """Give every name what stood there, and take away the names that are new."""
        for table, names, values in self.tables:
            if len(table) == len(values) and (not values or all(map(is_, table.values(), values))):
                continue
            table.clear()
            table.update(zip(names, values, strict=True))
            if table is self.module._buffers:
                self.module._non_persistent_buffers_set.clear()
                self.module._non_persistent_buffers_set.update(self.short_lived)
        state = vars(self.module)
        for name in state.keys() - _MODULE_ATTRIBUTES - self.attributes.keys():
            del state[name]
        for name, value in self.attributes.items():
            if state.get(name, _MISSING) is not value:
                state[name] = value
