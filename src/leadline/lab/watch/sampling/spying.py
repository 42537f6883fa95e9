"""See attention in somebody's forward pass, with a fence around all that looks.

`AttentionSpy` stands inside of the model's own functions: whatever fails in it would reach the loop.
Here the model's function runs first and once, outside of the fence, and its errors are the model's;
then what looks at it may fail, which ends the sample and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from leadline.anatomy import ModuleHook
from leadline.anatomy.tap.attention import LOOKS, AttentionSpy, Eyes
from leadline.lab.watch.fence import Fence
from leadline.lab.watch.sampling.apart import apart, is_surrounded

__all__ = ["FencedSpy"]

# The stack of modes belongs to torch, and a mode that is not on top has no other way off it.
_modes: Any = torch.overrides


class FencedSpy(AttentionSpy):
    """A spy that looks while `looks` says so, and whose faults end the sample."""

    def __init__(
        self,
        model: nn.Module,
        listener: Callable[..., None],
        *,
        fence: Fence,
        examples: Callable[[], int | None],
        projections: bool,
        looks: Callable[[], bool],
    ) -> None:
        super().__init__(model, listener, examples=examples, projections=projections)
        self._looks = looks
        self._fence = fence
        self._is_open = False
        self._below: list[TorchFunctionMode] = []
        """The modes of the loop that the own one was set upon."""
        self._mode: Any = _FencedEyes(self)
        self.look = fence.shield(self._look)
        """Look at what a function returned, or at a module that begins or ends."""

    def __enter__(self) -> FencedSpy:
        enter = ModuleHook(self._fence.shield(self._entered))
        leave = ModuleHook(self._fence.shield(self._left))
        try:
            for module in self._model.modules():
                self._handles.append(module.register_forward_pre_hook(enter))
                self._handles.append(module.register_forward_hook(leave, always_call=True))
            self._below = list(_modes._get_current_function_mode_stack())
            self._mode.__enter__()
        except BaseException:
            self._release()
            raise
        self._is_open = True
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            self.stop()
        finally:
            self._release()

    def stop(self) -> None:
        """Look at functions no more; hooks stay until the spy is left."""
        if self._is_open:
            self._is_open = False
            _take_off(self._mode, self._below)

    def _look(self, look: Callable[..., None], *args: Any) -> None:
        if not self._looks():
            return
        guarded = self._fence.guard("Looking at attention", look)
        if is_surrounded():
            with apart():
                guarded(*args)
        else:
            guarded(*args)

    def _entered(self, module: nn.Module, args: Any) -> None:
        self._look(self._enter, module, args)

    def _left(self, module: nn.Module, args: Any, output: object) -> None:
        self._look(self._leave, module, args, output)


class _FencedEyes(Eyes):
    spy: FencedSpy
    of_a_watch = True

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is F.multi_head_attention_forward:
            return super().__torch_function__(func, types, args, kwargs)
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        look = LOOKS.get(func)
        if look is not None:
            with torch._C.DisableTorchFunction(), torch.no_grad():
                self.spy.look(look, self, result, args, kwargs)
        elif self._tracks and isinstance(result, Tensor):
            self.spy.look(self._follow, func, result, args)
        return result


def _take_off(mode: TorchFunctionMode, below: list[TorchFunctionMode]) -> None:
    """Take a mode off the stack of this thread, wherever it stands in it.

    `with` blocks that are left take off whatever is on top. An interrupt inside of the pass leaves
    those of the loop while ours is on top: then it is one of theirs, `below`, that is left over.
    """
    stack = list(_modes._get_current_function_mode_stack())
    at = next((place for place, one in enumerate(stack) if one is mode), None)
    if at is None:
        same = 0
        while same < min(len(stack), len(below)) and stack[same] is below[same]:
            same += 1
        if not same:
            return
        at = same - 1
    above = [_modes._pop_mode() for _ in stack[at:]]
    for one in reversed(above[:-1]):
        _modes._push_mode(one)
