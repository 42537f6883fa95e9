"""GELU by its tanh approximation, as in GPT-2."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from leadline.parts.branches._branch import MLPS
from leadline.parts.branches.mlp._perceptron import Plain


@MLPS.register("gelu_tanh")
class GELUTanh(Plain):
    """GELU by its tanh approximation, as in GPT-2."""

    @staticmethod
    def activation(x: Tensor) -> Tensor:
        return F.gelu(x, approximate="tanh")
