"""SiLU, x sigma(x), without a gate.

    W_2 silu(W_1 x + b_1) + b_2,    silu(z) = z sigmoid(z)

`hidden` is the inner width, 4 width unless given; `bias` keeps b_1 and b_2.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from leadline.parts.branches.branch import MLPS
from leadline.parts.branches.mlp.perceptron import Plain


@MLPS.register("silu")
class SiLU(Plain):
    """SiLU, x sigma(x), without a gate."""

    @staticmethod
    def activation(x: Tensor) -> Tensor:
        return F.silu(x)
