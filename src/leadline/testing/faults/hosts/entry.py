"""What a host is: a healthy model that faults are put into, with inputs and a layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leadline.testing.faults.hosts.layout import Layout

if TYPE_CHECKING:
    from torch import nn

    from leadline.models.inputs import Inputs

__all__ = ["Host"]


@dataclass(frozen=True)
class Host:
    """A healthy model: `build(seed)` gives it in eval mode, `inputs(model, seed)` a batch for it."""

    name: str
    kind: str
    """decoder, encoder, encoder-decoder, vision."""
    build: Callable[[int], nn.Module]
    inputs: Callable[[nn.Module, int], Inputs]
    layout: Layout
    trained: bool = False
    traits: frozenset[str] = frozenset()
    """What faults ask for: "tied", "rotary", "qk norm", "recipe", "plain residual", "config"."""

    def has(self, *traits: str) -> bool:
        """Whether the host has all of these traits."""
        return set(traits) <= self.traits
