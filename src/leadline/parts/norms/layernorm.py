"""LayerNorm.

    N(x) = g (x - mean) / sqrt(var + eps) + b        (var divides by the width)

Ba et al. 2016, arXiv 1607.06450. eps 1e-5 as in GPT-2 (BERT: 1e-12), g = 1 and b = 0 at first.
"""

from __future__ import annotations

from torch import nn

from leadline.parts.norms._norm import NORMS
from leadline.parts.options import flag, number


@NORMS.register("layernorm")
class LayerNorm(nn.LayerNorm):
    """Zero mean, unit variance, then a learned gain and shift per feature."""

    def __init__(self, width: int, *, eps: float = 1e-5, bias: bool = True) -> None:
        super().__init__(
            width,
            eps=number(
                "layernorm", "eps", eps, wanted="a number from 0 on", fits=lambda x: x >= 0.0
            ),
            bias=flag("layernorm", "bias", bias),
        )
