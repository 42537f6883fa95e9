"""Keep what a watch computes apart from what the loop computes around it.

A watch runs inside of somebody's forward pass. What stands around that pass sees all that happens
in it: gradient checkpointing counts the tensors that autograd saves, selective checkpointing and
counters of operations look at every operation. None of them may see ours.

Some passes are none of the loop's training at all: those that are traced into a graph, those inside
of a transform of torch.func, and those by which checkpointing computes a part again during backward.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

__all__ = ["apart", "inside_backward", "is_recomputed", "is_surrounded", "is_transformed"]

# A stub of torch leaves some of these out.
_torch: Any = torch._C
_autograd: Any = _torch._autograd


def inside_backward() -> bool:
    """Whether a backward pass is under way in this thread."""
    return _torch._current_graph_task_id() != -1


def is_recomputed() -> bool:
    """Whether a checkpoint that is not reentrant computes again what it has computed before.

    A reentrant one has not been seen before: its first pass has no gradients.
    """
    return inside_backward() and _saved_tensors_hooks() is not None


def is_transformed() -> bool:
    """Whether a pass is traced, or runs inside of a transform of torch.func."""
    if _torch._get_tracing_state() is not None:
        return True
    if _torch._functorch.peek_interpreter_stack() is not None:
        return True
    keys = _torch._TorchDispatchModeKey
    return any(_torch._get_dispatch_mode(key) is not None for key in (keys.PROXY, keys.FAKE))


def is_surrounded() -> bool:
    """Whether anything stands around the pass that would see what is computed in it."""
    return _torch._len_torch_dispatch_stack() > 0 or _saved_tensors_hooks() is not None


@contextmanager
def apart() -> Iterator[None]:
    """Compute without the modes and the hooks on saved tensors that stand around the loop's pass."""
    taken: list[Any] = []
    with ExitStack() as stack:
        if _torch._len_torch_dispatch_stack():
            stack.enter_context(_disable_current_modes())
        try:
            while (pair := _saved_tensors_hooks()) is not None:
                _autograd._pop_saved_tensors_default_hooks()
                taken.append(pair)
            yield
        finally:
            for pair in reversed(taken):
                _autograd._push_saved_tensors_default_hooks(*pair)


def _saved_tensors_hooks() -> Any:
    """The innermost pair of hooks on saved tensors, as pack and unpack; None without any."""
    return _autograd._top_saved_tensors_default_hooks(False)
