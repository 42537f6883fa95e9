"""SwiGLU: gated by SiLU (Shazeer 2020, arXiv 2002.05202), as in Llama."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from leadline.parts.branches._branch import MLPS
from leadline.parts.branches.mlp._perceptron import Gated


@MLPS.register("swiglu")
class SwiGLU(Gated):
    """SwiGLU: gated by SiLU (Shazeer 2020, arXiv 2002.05202), as in Llama."""

    @staticmethod
    def activation(x: Tensor) -> Tensor:
        return F.silu(x)
