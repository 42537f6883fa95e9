"""GELU by its tanh approximation, as in GPT-2.

    W_2 gelu(W_1 x + b_1) + b_2,    gelu(z) = z (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3))) / 2

`hidden` is the inner width, 4 width unless given; `bias` keeps b_1 and b_2.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from leadline.parts.branches.branch import MLPS
from leadline.parts.branches.mlp.perceptron import Plain


@MLPS.register("gelu_tanh")
class GELUTanh(Plain):
    """GELU by its tanh approximation, as in GPT-2."""

    @staticmethod
    def activation(x: Tensor) -> Tensor:
        return F.gelu(x, approximate="tanh")
