"""Which run of autograd a gradient comes from: one that trains, or one that only asks.

`backward` adds gradients to the parameters, `torch.autograd.grad` returns them: that is how loops
take gradient penalties and the steps of an inner loop. To the hook of a tensor both look alike. Both
go through one function of torch, which is exchanged while a sample stands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import torch

from leadline.anatomy import own_depth
from leadline.lab.watch.exchange import Exchange

__all__ = ["EngineRun", "engine_runs", "failed_runs", "run_under_way"]


@dataclass
class EngineRun:
    """One run through a graph."""

    trains: bool
    """Whether it adds to the gradients of parameters."""
    keeps_graph: bool
    """Whether another run may go through the same graph."""


_under_way: dict[int, list[EngineRun]] = {}
"""By threads: the runs that have begun and not ended, a run inside of another behind it."""


_failed: dict[int, int] = {}


def failed_runs(thread: int) -> int:
    """How many runs that a thread began have raised an error."""
    return _failed.get(thread, 0)


def run_under_way(thread: int) -> EngineRun | None:
    """The run that a hook is called in, where a loop runs in a thread; None where nobody knows.

    Hooks of tensors on a CPU are called in the thread of the loop, those of other devices in threads
    of autograd.
    """
    runs = _under_way.get(get_ident()) or _under_way.get(thread)
    return runs[0] if runs else None


def _known(original: Callable[..., Any]) -> Callable[..., Any]:
    def engine_run_backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if own_depth():
            return original(tensors, *args, **kwargs)
        thread = get_ident()
        keeps = bool(args[1]) if len(args) > 1 else False
        run = EngineRun(bool(kwargs.get("accumulate_grad", True)), keeps)
        runs = _under_way.setdefault(thread, [])
        runs.append(run)
        try:
            return original(tensors, *args, **kwargs)
        except BaseException:
            _failed[thread] = failed_runs(thread) + 1
            raise
        finally:
            runs.pop()
            if not runs:
                _under_way.pop(thread, None)

    return engine_run_backward


engine_runs = Exchange(
    torch.autograd,
    "_engine_run_backward",
    # Without this torch.compile would compile it, where torch's own function is not.
    lambda original: torch.compiler.disable(_known(original)),
)
"""Knows the runs of autograd that are under way, as long as it stands."""
