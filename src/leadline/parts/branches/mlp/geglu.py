"""GEGLU: gated by the tanh GELU, as in Gemma.

    W_2 (gelu(W_g x) * W_1 x),    gelu by its tanh approximation

No biases unless `bias`. `hidden` is the inner width, 8/3 width rounded up to a multiple of 8
unless given, so that it has about as many weights as a plain MLP.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from leadline.parts.branches.branch import MLPS
from leadline.parts.branches.mlp.perceptron import Gated


@MLPS.register("geglu")
class GEGLU(Gated):
    """GEGLU: gated by the tanh GELU, as in Gemma."""

    @staticmethod
    def activation(x: Tensor) -> Tensor:
        return F.gelu(x, approximate="tanh")
