"""Count the updates of a loop by hooks of its optimizers.

An update is over when every optimizer of the loop has stepped, or when one of them is about to step
a second time: then the others did not step in this update. Without an optimizer torch's own global
step hooks are used, and an optimizer counts if it holds a parameter of the model; that is asked at
its first step, because sharding replaces parameters after the watch has begun.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from leadline.lab.watch.closures import Arguments, reading_after_closure

__all__ = ["UpdateCounter", "steps_made"]


class UpdateCounter:
    """Calls `before(optimizer)` ahead of every step, and `after()` when an update is over."""

    def __init__(
        self,
        module: nn.Module,
        optimizers: Sequence[Optimizer] | None,
        *,
        before: Callable[[Optimizer], None],
        after: Callable[[], None],
    ) -> None:
        self._module = module
        self._optimizers = optimizers
        self._before = before
        self._after = after
        self._stepped: set[int] = set()
        self._is_ours: dict[int, bool] = {id(one): True for one in optimizers or ()}
        self._handles: list[Any] = []

    def begin(self) -> None:
        """Set the hooks."""
        if self._optimizers is None:
            self._handles += [
                register_optimizer_step_pre_hook(self._before_step),
                register_optimizer_step_post_hook(self._after_step),
            ]
        for one in self._optimizers or ():
            self._handles += [
                one.register_step_pre_hook(self._before_step),
                one.register_step_post_hook(self._after_step),
            ]

    def end(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _before_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Arguments | None:
        if not self._counts(optimizer):
            return None
        if id(optimizer) in self._stepped:
            self._complete()
        exchanged = reading_after_closure(args, kwargs, lambda: self._before(optimizer))
        if exchanged is None:
            self._before(optimizer)
        return exchanged

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        if not self._counts(optimizer):
            return
        self._stepped.add(id(optimizer))
        if len(self._stepped) >= sum(self._is_ours.values()):
            self._complete()

    def _complete(self) -> None:
        self._stepped.clear()
        self._after()

    def _counts(self, optimizer: Optimizer) -> bool:
        known = self._is_ours.get(id(optimizer))
        if known is None:
            parameters = {id(parameter) for parameter in self._module.parameters()}
            known = any(
                id(parameter) in parameters
                for group in optimizer.param_groups
                for parameter in group["params"]
            )
            self._is_ours[id(optimizer)] = known
        return known


def steps_made(optimizer: Optimizer) -> int:
    """The updates that an optimizer has made, as its own state counts them; 0 where it does not."""
    counts = [state["step"] for state in optimizer.state.values() if "step" in state]
    return max((int(count) for count in counts), default=0)
