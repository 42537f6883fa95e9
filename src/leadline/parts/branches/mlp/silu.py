"""SiLU, x sigma(x), without a gate."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from leadline.parts.branches._branch import MLPS
from leadline.parts.branches.mlp._perceptron import Plain


@MLPS.register("silu")
class SiLU(Plain):
    """SiLU, x sigma(x), without a gate."""

    @staticmethod
    def activation(x: Tensor) -> Tensor:
        return F.silu(x)
