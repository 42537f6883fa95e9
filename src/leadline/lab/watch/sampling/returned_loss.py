"""What a loop makes of the loss that its model returns.

Loops divide it by their micro-batches, weigh it, or scale it. Backward brings the product of all that
to the returned loss as its gradient: 1 where nothing is done. A pass of ours through the uncompiled
model differentiates the loss itself, and what it brings to the stream is that times this factor.
"""

from __future__ import annotations

from threading import get_ident

from torch import Tensor, nn

from leadline.lab.watch.fence import Fence
from leadline.lab.watch.sampling.engine_runs import run_under_way

__all__ = ["ReturnedLoss"]


class ReturnedLoss:
    """Listens to the gradient at the loss of one pass; `module` is what the loop trains."""

    def __init__(self, loss: Tensor, module: nn.Module, fence: Fence) -> None:
        self._module = module
        self._thread = get_ident()
        self._gradient: Tensor | None = None
        loss.register_hook(fence.guard("Listening to the loss", self._take))

    def _take(self, gradient: Tensor | None) -> None:
        run = run_under_way(self._thread)
        if gradient is None:  # where backward came through another output of the same graph
            return
        if run is None or run.trains(self._module.parameters()):
            one = gradient.detach().double().sum()
            self._gradient = one if self._gradient is None else self._gradient + one

    @property
    def factor(self) -> float | None:
        """What backward has brought in all; None where none has come through."""
        return None if self._gradient is None else float(self._gradient)
