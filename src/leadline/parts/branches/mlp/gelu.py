"""GELU with the exact error function (Hendrycks and Gimpel 2016, arXiv 1606.08415), as in BERT.

    W_2 gelu(W_1 x + b_1) + b_2,    gelu(z) = z Phi(z), Phi the normal distribution

`hidden` is the inner width, 4 width unless given; `bias` keeps b_1 and b_2.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from leadline.parts.branches.branch import MLPS
from leadline.parts.branches.mlp.perceptron import Plain


@MLPS.register("gelu")
class GELU(Plain):
    """GELU with the exact error function (Hendrycks and Gimpel 2016, arXiv 1606.08415), as in BERT."""

    @staticmethod
    def activation(x: Tensor) -> Tensor:
        return F.gelu(x)
