"""GELU with the exact error function (Hendrycks and Gimpel 2016, arXiv 1606.08415), as in BERT."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from leadline.parts.branches._branch import MLPS
from leadline.parts.branches.mlp._perceptron import Plain


@MLPS.register("gelu")
class GELU(Plain):
    """GELU with the exact error function (Hendrycks and Gimpel 2016, arXiv 1606.08415), as in BERT."""

    @staticmethod
    def activation(x: Tensor) -> Tensor:
        return F.gelu(x)
