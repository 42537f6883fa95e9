"""Dynamic erf: the error function in the place of a norm.

    N(x) = g erf(a x + s) + b

Chen et al. 2025, arXiv 2512.10938. a (their alpha) and s are one learned number each, 0.5 and 0
at first; g = 1 and b = 0 at first, per feature. Like DyT it bounds features and computes nothing
over a token. It costs two parameters more than LayerNorm.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leadline.parts.norms._norm import NORMS
from leadline.parts.options import number


@NORMS.register("derf")
class DynamicErf(nn.Module):
    """g erf(a x + s) + b with learned a and s (Derf)."""

    def __init__(self, width: int, *, alpha: float = 0.5, shift: float = 0.0) -> None:
        super().__init__()
        self.alpha = nn.Parameter(
            torch.tensor(
                number("derf", "alpha", alpha, wanted="a number above 0", fits=lambda x: x > 0.0)
            )
        )
        self.shift = nn.Parameter(torch.tensor(number("derf", "shift", shift)))
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return (self.weight * torch.erf(self.alpha * x + self.shift) + self.bias).to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.weight.numel()}"
