"""Dynamic tanh: a bounded curve in the place of a norm.

    N(x) = g tanh(a x) + b

Zhu et al. 2025, arXiv 2503.10622. a is one learned number (their alpha), 0.5 at first; g = 1 and
b = 0 at first, per feature. For language models the paper tunes the start of a. No mean and no
variance of a token is computed: a token is not brought to size, only its large features are
bounded. It costs one parameter more than LayerNorm.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leadline.parts.norms._norm import NORMS
from leadline.parts.options import number


@NORMS.register("dyt")
class DynamicTanh(nn.Module):
    """g tanh(a x) + b with one learned a (DyT)."""

    def __init__(self, width: int, *, alpha: float = 0.5) -> None:
        super().__init__()
        start = number("dyt", "alpha", alpha, wanted="a number above 0", fits=lambda x: x > 0.0)
        self.alpha = nn.Parameter(torch.tensor(start))
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return (self.weight * torch.tanh(self.alpha * x) + self.bias).to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.weight.numel()}"
