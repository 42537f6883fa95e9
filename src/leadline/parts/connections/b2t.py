"""B2T: the MLP's addition receives what entered the layer as well.

    h  = N(x + A(x))
    x' = N(x + h + M(h))

Takase et al. 2022 (bottom-to-top connection), arXiv 2206.00330: x, the layer's input, runs past
all norms of the layer but the last. It makes deep post-norm stacks trainable. The norms are the
placement's, which must norm the stream after every addition; a layer must have two writes. No
constants, and no init of its own (whether the paper has one is not confirmed). It costs one
addition per layer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from leadline.parts.connections._connection import CONNECTIONS, Connection
from leadline.parts.placements import Placement


@CONNECTIONS.register("b2t")
class BottomToTop(Connection):
    """x + u, and at the end of a layer its input once more (B2T)."""

    formula = "x + u; at the layer's last write: x + (layer's input) + u"
    keeps_identity = False
    amplifies = True

    @classmethod
    def refuses(cls, placement: Placement, sublayers: int) -> str | None:
        if sublayers != 2:
            return (
                "it runs from the bottom of a layer to the second of its two writes, and here a "
                f"layer has {sublayers}"
            )
        if not placement.settles:
            return (
                "it runs past the norm on the stream after the first addition to the one after the "
                "second, and not all of them stand here (choose the placement post or keel)"
            )
        return super().refuses(placement, sublayers)

    def write(self, state: Any, update: Tensor) -> Any:
        kept, written = self.split(state, update)
        after = kept + written
        return after if self.place.ends_layer else (after, state)

    def split(self, state: Any, update: Tensor) -> tuple[Tensor, Tensor]:
        if not self.place.ends_layer:
            return state, update
        h, entry = state
        return torch.add(h, entry), update
