"""One pass over the small inputs that several checks read, instead of one pass for each of them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from leadline.anatomy.tensors import mapped
from leadline.instruments.passes.running import call
from leadline.models.inputs import Inputs

__all__ = ["SmallPass", "SubmoduleCall", "run_small"]


@dataclass(eq=False)
class SubmoduleCall:
    """One call of one module: what entered and what it returned, as they were at that time."""

    path: str
    module: nn.Module
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]
    output: Any = None
    place: int = -1
    """The place among the calls in the order of return: inner modules return first."""


@dataclass(frozen=True)
class SmallPass:
    """The calls of all modules but the model itself in the order of entry, and the model's output."""

    calls: tuple[SubmoduleCall, ...]
    result: Any

    @property
    def by_return(self) -> list[SubmoduleCall]:
        """The calls in the order of return."""
        return sorted((one for one in self.calls if one.place >= 0), key=lambda one: one.place)


def run_small(model: nn.Module, inputs: Inputs) -> SmallPass:
    """One pass without gradients, with everything that enters and leaves modules kept."""
    calls: list[SubmoduleCall] = []
    running: list[SubmoduleCall] = []
    copies = _Copies()
    count = 0

    def enter(path: str, module: nn.Module, arguments: Any, named: Any) -> None:
        one = SubmoduleCall(path, module, copies.of(arguments), copies.of(named))
        calls.append(one)
        running.append(one)

    def leave(module: nn.Module, output: Any) -> None:
        nonlocal count
        while running and running[-1].module is not module:
            running.pop()  # a module that raised, and whose caller went on
        if running:
            one = running.pop()
            one.output, one.place = copies.of(output), count
            count += 1

    with ExitStack() as hooks, torch.no_grad():
        for path, module in model.named_modules():
            if path:
                before = module.register_forward_pre_hook(
                    lambda m, a, k, path=path: enter(path, m, a, k), with_kwargs=True
                )
                hooks.callback(before.remove)
                after = module.register_forward_hook(lambda m, _, output: leave(m, output))
                hooks.callback(after.remove)
        result = call(model, inputs)
    return SmallPass(tuple(calls), result)


class _Copies:
    """Copies of tensors as they stand: models change tensors in place later. Each state is copied once."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def of(self, value: Any) -> Any:
        """The value with the tensors in its tuples, lists and dicts copied."""
        return mapped(value, self._copy)

    def _copy(self, tensor: Tensor) -> Tensor:
        # The tensor itself is kept too, so that its identity is not given to another.
        key = id(tensor), tensor._version  # pyright: ignore[reportPrivateUsage]
        if key not in self.known:
            self.known[key] = tensor, tensor.detach().clone()
        return self.known[key][1]
