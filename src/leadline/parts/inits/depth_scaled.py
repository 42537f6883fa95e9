"""Depth-scaled init: later layers start smaller.

    Xavier uniform with gain alpha / sqrt(l),     l = layer, counted from 1

Zhang et al. 2019, arXiv 1908.11365 (DS-Init). alpha = 1. All matrices of a layer are scaled,
queries and keys too. The head is in no layer and keeps gain 1; tables are drawn as by xavier. For
deep post-norm stacks: a later layer changes the variance of its stream less, so the norm behind
it takes less from the gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from leadline.parts.inits.init import INITS, xavier
from leadline.parts.inits.xavier import Xavier
from leadline.parts.options import number
from leadline.parts.place import Place


@INITS.register("depth_scaled")
class DepthScaled(Xavier):
    """Xavier uniform, less by sqrt(l) in layer l."""

    def __init__(self, *, alpha: float = 1.0) -> None:
        super().__init__()
        self.alpha = number(
            "depth_scaled",
            "alpha",
            alpha,
            wanted="a number above 0",
            fits=lambda v: v > 0.0,
        )

    def fill(self, role: str, weight: Tensor, place: Place, generator: torch.Generator) -> None:
        if place.layer > 0:
            xavier(weight, self.alpha * place.layer**-0.5, generator)
        else:
            super().fill(role, weight, place, generator)
