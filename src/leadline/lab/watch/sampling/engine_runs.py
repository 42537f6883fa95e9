"""Which run of autograd a gradient comes from: one that trains, or one that only asks.

`backward` adds gradients to the parameters, `torch.autograd.grad` returns them: that is how loops
take gradient penalties and the steps of an inner loop. `backward(inputs=...)` adds them to what it
names alone, which may be no parameter: so loops find adversarial examples. To the hook of a tensor all
of them look alike. They go through one function of torch, which is exchanged while a sample stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import torch
from torch import Tensor

from leadline.anatomy import own_depth
from leadline.lab.watch.exchange import Exchange

__all__ = ["EngineRun", "engine_runs", "failed_runs", "run_under_way"]


@dataclass
class EngineRun:
    """One run through a graph."""

    adds: bool
    """Whether it adds to gradients, and does not return them."""
    inputs: Sequence[Any]
    """The tensors, or the edges that lead to them, to whose gradients alone it adds; none: to all."""
    keeps_graph: bool
    """Whether another run may go through the same graph."""

    def trains(self, parameters: Iterable[Tensor]) -> bool:
        """Whether it adds to the gradient of any of these parameters."""
        if not self.adds or not self.inputs:
            return self.adds
        # Told here, behind the fence of a hook: the run itself is the loop's, and must not fail.
        named = _identities(self.inputs)
        return any(id(one) in named for one in parameters)


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
        # Of torch: gradients, whether the graph is kept, whether one of it is made, and inputs.
        keeps = bool(args[1]) if len(args) > 1 else False
        inputs = args[3] if len(args) > 3 else ()
        run = EngineRun(bool(kwargs.get("accumulate_grad", True)), inputs, keeps)
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


def _identities(inputs: Sequence[Any]) -> frozenset[int]:
    """The tensors that a run is asked for, some of which are named by the edge that leads to them."""
    edges = (getattr(one, "node", None) for one in inputs)
    named = (getattr(edge, "variable", None) for edge in edges)
    return frozenset(map(id, (*inputs, *named))) - {id(None)}


engine_runs = Exchange(
    torch.autograd,
    "_engine_run_backward",
    # Without this torch.compile would compile it, where torch's own function is not.
    lambda original: torch.compiler.disable(_known(original)),
)
"""Knows the runs of autograd that are under way, as long as it stands."""
