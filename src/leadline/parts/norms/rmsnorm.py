"""RMSNorm.

    N(x) = (offset + g) x / sqrt(mean(x^2) + eps)

Zhang and Sennrich 2019, arXiv 1910.07467. eps 1e-6. Gemma stores the gain minus one: `offset=1`.
The gain starts so that offset + g = 1. Half precision is normed in float32.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from leadline.parts.norms._norm import NORMS


@NORMS.register("rmsnorm")
class RMSNorm(nn.Module):
    """Unit mean square, then a learned gain per feature."""

    def __init__(self, width: int, *, eps: float = 1e-6, offset: float = 0.0) -> None:
        super().__init__()
        self.eps = eps
        self.offset = offset
        self.weight = nn.Parameter(torch.full((width,), 1.0 - offset))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight if self.offset == 0.0 else self.offset + self.weight
        if x.dtype == weight.dtype:
            return F.rms_norm(x, weight.shape, weight, self.eps)
        return F.rms_norm(x, weight.shape, weight.to(x.dtype), self.eps)

    def extra_repr(self) -> str:
        return f"{self.weight.numel()}, eps={self.eps:g}, offset={self.offset:g}"
