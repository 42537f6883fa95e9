"""ReLU, as in the first Transformer."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from leadline.parts.branches._branch import MLPS
from leadline.parts.branches.mlp._perceptron import Plain


@MLPS.register("relu")
class ReLU(Plain):
    """ReLU, as in the first Transformer."""

    @staticmethod
    def activation(x: Tensor) -> Tensor:
        return F.relu(x)
