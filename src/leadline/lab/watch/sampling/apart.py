"""Keep what a watch computes apart from what the loop computes around it.

A watch runs inside of somebody's forward pass, backward pass and step. What stands around them sees
all that happens in it: gradient checkpointing counts the tensors that autograd saves, modes of
operations and of functions count, change or fake what is computed, autocast makes it bfloat16. None
of them may see ours. The default device of torch is a mode as well, and stays.

Some passes are none of the loop's training at all: those that are traced into a graph, those inside
of a transform of torch.func, and those by which checkpointing computes a part again during backward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, TypeVar

import torch
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _disable_current_modes

__all__ = [
    "apart",
    "inside_backward",
    "is_recomputed",
    "is_surrounded",
    "is_transformed",
    "set_apart",
]

Returned = TypeVar("Returned")

# A stub of torch leaves some of these out.
_torch: Any = torch._C
_autograd: Any = _torch._autograd
# The stack of modes belongs to torch, and a mode that is not on top has no other way off it.
_modes: Any = torch.overrides


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
    """Whether anything stands around the pass that would see what is computed in it, or change it."""
    return (
        _torch._len_torch_dispatch_stack() > 0
        or _torch._is_any_autocast_enabled()
        or _saved_tensors_hooks() is not None
        or (_torch._len_torch_function_stack() > 0 and bool(_function_modes()))
    )


@contextmanager
def apart(*, passes: bool = False) -> Iterator[None]:
    """Compute without the modes, the autocast and the hooks on saved tensors of the loop.

    `passes`: passes of the model are made, for which autocast is what the loop has chosen.
    """
    taken: list[Any] = []
    with ExitStack() as stack:
        if _torch._len_torch_dispatch_stack():
            stack.enter_context(_disable_current_modes())
        if _torch._len_torch_function_stack():
            _take_function_modes(stack)
        if not passes:
            stack.enter_context(_torch._DisableAutocast())
        try:
            while (pair := _saved_tensors_hooks()) is not None:
                _autograd._pop_saved_tensors_default_hooks()
                taken.append(pair)
            yield
        finally:
            for pair in reversed(taken):
                _autograd._push_saved_tensors_default_hooks(*pair)


def set_apart(function: Callable[..., Returned]) -> Callable[..., Returned]:
    """Return the function to be called apart, where anything stands around it."""

    @wraps(function)
    def set_apart(*args: Any, **kwargs: Any) -> Returned:
        if torch.compiler.is_compiling() or not is_surrounded():
            return function(*args, **kwargs)
        with apart():
            return function(*args, **kwargs)

    return set_apart


def _function_modes() -> list[Any]:
    """The modes of functions that the loop has set, the outermost first."""
    count = _torch._len_torch_function_stack()
    modes = [_torch._get_function_stack_at(at) for at in range(count)]
    return [one for one in modes if not _stays(one)]


def _stays(mode: Any) -> bool:
    """Whether a mode of functions is the default device, or one by which a watch itself looks."""
    return isinstance(mode, DeviceContext) or getattr(mode, "of_a_watch", False)


def _take_function_modes(stack: ExitStack) -> None:
    """Take the modes of the loop off the stack of torch; the default device stays."""
    modes = [_modes._pop_mode() for _ in range(_torch._len_torch_function_stack())]
    kept = [one for one in reversed(modes) if _stays(one)]

    def put_back() -> None:
        for _ in kept:
            _modes._pop_mode()
        for one in reversed(modes):
            _modes._push_mode(one)

    stack.callback(put_back)
    for one in kept:
        _modes._push_mode(one)


def _saved_tensors_hooks() -> Any:
    """The innermost pair of hooks on saved tensors, as pack and unpack; None without any."""
    return _autograd._top_saved_tensors_default_hooks(False)
