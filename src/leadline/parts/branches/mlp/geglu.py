"""GEGLU: gated by the tanh GELU, as in Gemma."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from leadline.parts.branches._branch import MLPS
from leadline.parts.branches.mlp._perceptron import Gated


@MLPS.register("geglu")
class GEGLU(Gated):
    """GEGLU: gated by the tanh GELU, as in Gemma."""

    @staticmethod
    def activation(x: Tensor) -> Tensor:
        return F.gelu(x, approximate="tanh")
