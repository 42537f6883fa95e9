"""SwiGLU: gated by SiLU (Shazeer 2020, arXiv 2002.05202), as in Llama.

    W_2 (silu(W_g x) * W_1 x),    silu(z) = z sigmoid(z)

No biases unless `bias`. `hidden` is the inner width, 8/3 width rounded up to a multiple of 8
unless given, so that it has about as many weights as a plain MLP.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from leadline.parts.branches.branch import MLPS
from leadline.parts.branches.mlp.perceptron import Gated


@MLPS.register("swiglu")
class SwiGLU(Gated):
    """SwiGLU: gated by SiLU (Shazeer 2020, arXiv 2002.05202), as in Llama."""

    @staticmethod
    def activation(x: Tensor) -> Tensor:
        return F.silu(x)
