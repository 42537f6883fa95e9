"""GPT-2's init.

    std 0.02; the weights that write to the stream: 0.02 / sqrt(N)

N = number of residual additions, 2 x layers. Radford et al. 2019.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from leadline.parts.inits.init import INITS, RESIDUAL, Init, normal
from leadline.parts.options import number
from leadline.parts.place import Place


@INITS.register("gpt2")
class GPT2Init(Init):
    """Normal of std 0.02, less by sqrt(writes) for the weights that write to the stream."""

    def __init__(self, *, std: float = 0.02) -> None:
        self.std = number("gpt2", "std", std, wanted="a number from 0 on", fits=lambda v: v >= 0.0)

    def fill(self, role: str, weight: Tensor, place: Place, generator: torch.Generator) -> None:
        std = self.std / math.sqrt(place.writes) if role in RESIDUAL else self.std
        normal(weight, std, generator)
