"""Hands on what a tap reads, with a fence around every probe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from leadline.anatomy import Block, Stack, Sublayer
from leadline.instruments.passes.collect import Collector
from leadline.lab.watch.fence import Fence
from leadline.lab.watch.sampling.stream_gradients import StreamGradients

__all__ = ["FencedListener"]


class Listening(Protocol):
    """The sample that somebody listens for."""

    over: bool
    fence: Fence
    module: nn.Module


class FencedListener:
    """Hands on what the tap reads; a probe that fails ends the sample and nothing else."""

    def __init__(self, collector: Collector, sample: Listening, *, own: bool = False) -> None:
        self._sample = sample
        self._collector = collector
        self.gradients = StreamGradients(collector.gradient, sample.module, own=own)

    def _hand_on(self, method: Callable[..., None], *args: Any) -> None:
        sample = self._sample
        if sample.over or sample.fence.off:
            return
        try:
            method(*args)
        except Exception as error:
            sample.fence.fault(error, "A probe")

    def stream(self, stack: Stack, layer: int, sublayer: int | None, x: Tensor) -> None:
        """Hand on the stream behind a block; the sites between its writes are not watched."""
        if sublayer is None:
            self._hand_on(self._collector.stream, stack, layer, sublayer, x)

    def update(self, stack: Stack, block: Block, write: Sublayer, u: Tensor, x: Tensor) -> None:
        """Hand on a write."""
        self._hand_on(self._collector.update, stack, block, write, u, x)

    def block(self, stack: Stack, block: Block, before: Tensor, after: Tensor) -> None:
        """Hand on a block."""
        self._hand_on(self._collector.block, stack, block, before, after)

    def gradient(self, stack: Stack, layer: int, sublayer: int | None, g: Tensor) -> None:
        """Take a gradient at the stream behind a block."""
        if sublayer is None:
            self._hand_on(self.gradients.take, stack, layer, g)

    def end(self) -> None:
        """No further gradient will come."""
        with torch.no_grad():
            self._hand_on(self.gradients.end)
