"""Count the updates of a loop by hooks of its optimizers.

An update is over when every optimizer of the loop has stepped. Where one of them steps more rarely,
it is over when the loop goes on: with the next backward pass, or a second step of the same
optimizer. So two optimizers with a backward pass between their steps make two updates.

Without an optimizer torch's own global step hooks are used, and an optimizer counts if it holds a
parameter of the model; that is asked at its first step, because sharding replaces parameters after
the watch has begun. As long as those that have stepped do not hold every parameter that is trained,
there may be another one, and the next backward pass is waited for.

A step that is itself compiled is not counted: its hooks are traced with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from leadline.lab.watch.closures import Arguments, reading_after_closure
from leadline.lab.watch.fence import Fence

__all__ = ["UpdateCounter", "is_skipped", "steps_made"]


class UpdateCounter:
    """Calls `before(optimizer)` ahead of every step, and `after()` when an update is over.

    `waiting()` is called when an optimizer has stepped and others are waited for.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizers: Sequence[Optimizer] | None,
        *,
        before: Callable[[Optimizer], None],
        after: Callable[[], None],
        waiting: Callable[[], None],
        fence: Fence,
    ) -> None:
        self._module = module
        self._optimizers = optimizers
        self._before = before
        self._after = after
        self._waiting = waiting
        self._fence = fence
        self._stepped: dict[int, Optimizer] = {}
        self._ours: dict[int, Optimizer] = {id(one): one for one in optimizers or ()}
        self._others: dict[int, Optimizer] = {}
        self._covers = optimizers is not None
        """Whether no further optimizer can be hidden somewhere."""
        self._handles: list[Any] = []

    def begin(self) -> None:
        """Set the hooks."""
        before = self._fence.shield(self._before_step)
        after = self._fence.shield(self._after_step)
        if self._optimizers is None:
            self._handles += [
                register_optimizer_step_pre_hook(before),
                register_optimizer_step_post_hook(after),
            ]
        for one in self._optimizers or ():
            self._handles += [
                one.register_step_pre_hook(before),
                one.register_step_post_hook(after),
            ]

    def end(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def go_on(self) -> None:
        """The loop goes on to its next update: what has stepped so far was one."""
        if self._stepped:
            self._complete()

    def _before_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Arguments | None:
        if torch.compiler.is_compiling() or not self._counts(optimizer):
            return None
        if id(optimizer) in self._stepped:
            self._complete()
        exchanged = reading_after_closure(args, kwargs, lambda: self._before(optimizer))
        if exchanged is None:
            self._before(optimizer)
        return exchanged

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        if torch.compiler.is_compiling() or not self._counts(optimizer):
            return
        self._stepped[id(optimizer)] = optimizer
        if self._covers and len(self._stepped) >= len(self._ours):
            self._complete()
        else:
            self._waiting()

    def _complete(self) -> None:
        self._stepped.clear()
        self._after()

    def _counts(self, optimizer: Optimizer) -> bool:
        if id(optimizer) in self._ours:
            return True
        if self._optimizers is not None or id(optimizer) in self._others:
            return False
        trained = {id(one) for one in self._module.parameters() if one.requires_grad}
        if trained & _held(optimizer):
            self._ours[id(optimizer)] = optimizer
            self._covers = trained <= set[int]().union(*map(_held, self._ours.values()))
        else:
            self._others[id(optimizer)] = optimizer
        return id(optimizer) in self._ours


def _held(optimizer: Optimizer) -> set[int]:
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


def steps_made(optimizer: Optimizer) -> int:
    """The updates that an optimizer has made, as its own state counts them; 0 where it does not."""
    states: Any = optimizer.state
    entries: list[Any] = list(states.values()) if isinstance(states, Mapping) else []
    counts = [one["step"] for one in entries if isinstance(one, Mapping) and "step" in one]
    counts += [group["step"] for group in optimizer.param_groups if "step" in group]
    return max(map(_whole, counts), default=0)


def _whole(count: Any) -> int:
    """A count of updates as a number; 0 where it is something else, such as one for every row."""
    if isinstance(count, torch.Tensor):
        return int(count) if count.numel() == 1 else 0
    return int(count) if isinstance(count, int | float) else 0


def is_skipped(optimizer: Optimizer) -> bool:
    """Whether a fused optimizer is about to leave the weights alone: its scaler met an infinity.

    Others are not asked to step at all then.
    """
    infinities = getattr(optimizer, "found_inf", None)
    return isinstance(infinities, torch.Tensor) and bool(infinities > 0)
