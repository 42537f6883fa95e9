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

from leadline.anatomy.tap import attention as looking
from leadline.anatomy.tap.attention import AttentionSpy
from leadline.lab.watch.fence import Fence

__all__ = ["FencedSpy"]

_Eyes: Any = looking._Eyes  # pyright: ignore[reportPrivateUsage]
_LOOKS: Any = looking._LOOKS  # pyright: ignore[reportPrivateUsage]


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
        self._mode: Any = _FencedEyes(self)
        self.look = fence.shield(self._look)
        """Look at what a function returned, or at a module that begins or ends."""

    def __enter__(self) -> FencedSpy:
        enter, leave = self._fence.shield(self._entered), self._fence.shield(self._left)
        try:
            for module in self._model.modules():
                self._handles.append(module.register_forward_pre_hook(enter))
                self._handles.append(module.register_forward_hook(leave, always_call=True))
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
            self._mode.__exit__(None, None, None)

    def _look(self, look: Callable[..., None], *args: Any) -> None:
        if self._looks():
            self._fence.guard("Looking at attention", look)(*args)

    def _entered(self, module: nn.Module, args: Any) -> None:
        self._look(self._enter, module, args)

    def _left(self, module: nn.Module, args: Any, output: object) -> None:
        self._look(self._leave, module, args, output)


class _FencedEyes(_Eyes):
    spy: FencedSpy

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is F.multi_head_attention_forward:
            return super().__torch_function__(func, types, args, kwargs)
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        look = _LOOKS.get(func)
        if look is not None:
            with torch._C.DisableTorchFunction(), torch.no_grad():
                self.spy.look(look, self, result, args, kwargs)
        elif self._tracks and isinstance(result, Tensor):
            self.spy.look(self._follow, func, result, args)
        return result
