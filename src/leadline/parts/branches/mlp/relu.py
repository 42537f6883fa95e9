"""ReLU, as in the first Transformer.

    W_2 max(0, W_1 x + b_1) + b_2

`hidden` is the inner width, 4 width unless given; `bias` keeps b_1 and b_2.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from leadline.parts.branches.branch import MLPS
from leadline.parts.branches.mlp.perceptron import Plain


@MLPS.register("relu")
class ReLU(Plain):
    """ReLU, as in the first Transformer."""

    @staticmethod
    def activation(x: Tensor) -> Tensor:
        return F.relu(x)
