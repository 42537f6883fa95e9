"""Count the updates of a loop by hooks of its optimizers.

An update is over when every optimizer of the loop has stepped. Where one of them steps more rarely,
it is over when the loop goes on: with the next backward pass, or a second step of the same
optimizer. So two optimizers with a backward pass between their steps make two updates.

A step inside of a step belongs to the outer one, and is where that is read: SAM and Lookahead hold
the optimizer that moves the weights. It counts for its holder where SAM's `first_step` and
`second_step` call it without a step of their own.

Of optimizers that are given, an update is what they make. Where another one steps that holds a
parameter of the model as well, as in loops that train it by two losses in turn, that is told.

Without an optimizer torch's own global step hooks are used, and an optimizer counts if it holds a
parameter of the model; that is asked at its first step, because sharding replaces parameters after
the watch has begun. As long as those that have stepped do not hold every parameter that is trained,
there may be another one, and the next backward pass is waited for.

A step that is itself compiled is not counted: its hooks are traced with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Literal
from weakref import WeakKeyDictionary, ref

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import (
    _global_optimizer_post_hooks,  # pyright: ignore[reportPrivateUsage]
    _global_optimizer_pre_hooks,  # pyright: ignore[reportPrivateUsage]
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from leadline.lab.watch.fence import Fence
from leadline.lab.watch.sampling.apart import set_apart
from leadline.lab.watch.updates.closures import Arguments, reading_after_closure
from leadline.lab.watch.updates.steps import (
    StepUnderWay,
    calling_frame,
    fills_state,
    held,
    inner_optimizers,
)

__all__ = ["UpdateCounter", "is_skipped", "steps_made"]


class UpdateCounter:
    """Calls `before(optimizer)` ahead of every step, and `after()` when an update is over.

    `waiting()` is called when an optimizer has stepped and others are waited for,
    `missed(optimizer)` behind a step that could not be looked at ahead of it, and `elsewhere()`
    behind that of an optimizer of the model that is not one of those given.
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
        missed: Callable[[Optimizer], None] = lambda _: None,
        elsewhere: Callable[[], None] = lambda: None,
    ) -> None:
        self._module = module
        self._optimizers = optimizers
        self._before = before
        self._after = after
        self._waiting = waiting
        self._missed = missed
        self._elsewhere = elsewhere
        self._fence = fence
        self._stepped: dict[int, Optimizer] = {}
        self._ours: dict[int, Optimizer] = {id(one): one for one in optimizers or ()}
        self._others: dict[int, Optimizer] = {}
        self._hooked: dict[int, Optimizer] = {}
        """Those that were given, and what they hold."""
        self._holds: WeakKeyDictionary[Optimizer, bool] = WeakKeyDictionary()
        """Of others, whether they hold a parameter of the model."""
        self._heard_by: tuple[Callable[..., Any], ...] = ()
        self._holders: dict[int, Optimizer] = {}
        """By an optimizer that another one holds, the outermost of those that were given."""
        for one in optimizers or ():
            for inner in inner_optimizers(one):
                self._holders.setdefault(id(inner), one)
        # Both may be given: the inner one never makes an update of its own.
        for key in self._holders.keys() & self._ours.keys():
            del self._ours[key]
        self._covers = optimizers is not None
        """Whether no further optimizer can be hidden somewhere."""
        self._under_way: StepUnderWay | None = None
        self._ahead: set[int] = set()
        """Optimizers that call neither their closure nor what they hold: read them ahead of both."""
        self._late = 0
        """1 while an optimizer is looked at only behind its step."""
        self._filled: set[int] = set()
        self._thread: int | None = None
        """The thread that makes the steps."""
        self._handles: list[Any] = []

    def begin(self) -> None:
        """Set the hooks."""
        shield = self._fence.shield
        before = shield(set_apart(self._before_step))
        after = shield(set_apart(self._after_step))
        self._heard_by = (before, after, shield(self._step_elsewhere))
        # Of every optimizer of the process: they must not keep a model alive that nobody trains.
        if self._optimizers is None:
            self._handles += [_OfAll("pre", self, 0), _OfAll("post", self, 1)]
        else:
            self._handles.append(_OfAll("post", self, 2))
        for one in self._optimizers or ():
            self._hooked |= {id(each): each for each in (one, *inner_optimizers(one))}
        for one in self._hooked.values():
            self._handles += [
                one.register_step_pre_hook(before),
                one.register_step_post_hook(after),
            ]

    def end(self) -> None:
        """Take the hooks off, whatever fails on the way."""
        self._under_way = None
        with ExitStack() as stack:
            for handle in self._handles:
                stack.callback(handle.remove)
            self._handles = []

    def go_on(self) -> None:
        """The loop goes on to its next update: what has stepped so far was one.

        What another thread does says nothing about this loop.
        """
        if self._stepped and self._thread == threading.get_ident():
            self._complete()

    @property
    def has_stepped(self) -> bool:
        """Whether some optimizers have stepped, and others may belong to the same update."""
        return bool(self._stepped)

    def finish(self) -> None:
        """The loop is over: what has stepped so far was an update, whoever says so."""
        if self._stepped:
            self._complete()

    def steps_made(self, optimizer: Optimizer) -> int:
        """The updates that an optimizer has made ahead of this one, and not to fill its state."""
        made = steps_made(optimizer) - self._late
        return 0 if made == 1 and id(optimizer) in self._filled else max(made, 0)

    def _before_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Arguments | None:
        if torch.compiler.is_compiling():
            return None
        frame, step = calling_frame(), self._under_way
        if step is not None and step.calls(frame):
            waited = not step.read and any(optimizer is one for one in step.waits_for)
            return self._read(step, optimizer, args, kwargs) if waited else None
        self._under_way = None
        if fills_state(frame):
            self._filled.add(id(optimizer))
            return None
        counted = self._holders.get(id(optimizer), optimizer)
        if not self._counts(counted):
            return None
        if id(counted) in self._stepped:
            self._complete()
        self._under_way = step = StepUnderWay(optimizer, frame)
        if step.waits_for and id(optimizer) not in self._ahead:
            return None
        return self._read(step, optimizer, args, kwargs)

    def _read(
        self,
        step: StepUnderWay,
        optimizer: Optimizer,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Arguments | None:
        """Look at an optimizer now, or as soon as its closure has made the gradients."""

        def read() -> None:
            if not step.read:
                step.read = True
                # A sharding wrapper steps only a part of what it holds.
                whole = held(step.optimizer) <= held(optimizer)
                self._before(optimizer if whole else step.optimizer)

        exchanged = None
        if id(step.optimizer) not in self._ahead:
            shielded = self._fence.shield(set_apart(read))
            exchanged = reading_after_closure(optimizer, args, kwargs, shielded)
        if exchanged is None:
            read()
        return exchanged

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        if torch.compiler.is_compiling():
            return
        step = self._under_way
        if step is None or calling_frame() is not step.frame:
            return
        self._under_way = None
        if not step.read:
            self._ahead.add(id(optimizer))
            self._late = 1
            self._missed(optimizer)
            self._late = 0
        counted = self._holders.get(id(optimizer), optimizer)
        self._stepped[id(counted)] = counted
        self._thread = threading.get_ident()
        if self._covers and len(self._stepped) >= len(self._ours):
            self._complete()
        else:
            self._waiting()

    def _step_elsewhere(self, optimizer: Optimizer, *_: Any) -> None:
        if torch.compiler.is_compiling() or id(optimizer) in self._hooked:
            return
        frame, step = calling_frame(), self._under_way
        if (step is not None and step.calls(frame)) or fills_state(frame):
            return
        if optimizer not in self._holds:
            ours = {id(one) for one in self._module.parameters()}
            self._holds[optimizer] = bool(ours & held(optimizer))
        if self._holds[optimizer]:
            self._elsewhere()

    def _complete(self) -> None:
        self._stepped.clear()
        self._after()

    def _counts(self, optimizer: Optimizer) -> bool:
        if id(optimizer) in self._ours:
            return True
        if self._optimizers is not None or id(optimizer) in self._others:
            return False
        trained = {id(one) for one in self._module.parameters() if one.requires_grad}
        if trained & held(optimizer):
            self._ours[id(optimizer)] = optimizer
            self._covers = trained <= set[int]().union(*map(held, self._ours.values()))
        else:
            self._others[id(optimizer)] = optimizer
        return id(optimizer) in self._ours


class _OfAll:
    """A hook of every optimizer of the process, which does not keep alive whom it calls."""

    def __init__(self, turn: Literal["pre", "post"], counter: UpdateCounter, number: int) -> None:
        reference = ref(counter)

        def call(*args: Any) -> Any:
            one = reference()
            return None if one is None else one._heard_by[number](*args)

        if turn == "pre":
            self._hooks, register = _global_optimizer_pre_hooks, register_optimizer_step_pre_hook
        else:
            self._hooks, register = _global_optimizer_post_hooks, register_optimizer_step_post_hook
        self._key = register(call).id

    def remove(self) -> None:
        """Take it off; torch's own handle cannot where the garbage collector ends the watch."""
        self._hooks.pop(self._key, None)


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
