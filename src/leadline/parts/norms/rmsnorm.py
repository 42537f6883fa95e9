"""RMSNorm.

    N(x) = (offset + g) x / sqrt(mean(x^2) + eps)

Zhang and Sennrich 2019, arXiv 1910.07467. eps 1e-6. Gemma stores the gain minus one: `offset=1`.
The gain starts so that offset + g = 1. Half precision is normed in float32 and rounded once, as
in OLMo-2; Llama rounds before the gain too, so there a bfloat16 may differ in its last digit.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from leadline.parts.norms._norm import NORMS
from leadline.parts.options import number


@NORMS.register("rmsnorm")
class RMSNorm(nn.Module):
    """Unit mean square, then a learned gain per feature."""

    def __init__(self, width: int, *, eps: float = 1e-6, offset: float = 0.0) -> None:
        super().__init__()
        self.eps = number(
            "rmsnorm", "eps", eps, wanted="a number from 0 on", fits=lambda x: x >= 0.0
        )
        self.offset = number("rmsnorm", "offset", offset)
        self.weight = nn.Parameter(torch.full((width,), 1.0 - self.offset))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight
        dtype = torch.promote_types(x.dtype, weight.dtype)
        if self.offset != 0.0:
            # 1 + g in bfloat16 would lose most digits of g.
            dtype = torch.promote_types(dtype, torch.float32)
            weight = self.offset + weight.to(dtype)
        normed = F.rms_norm(x.to(dtype), weight.shape, weight.to(dtype), self.eps)
        return normed.to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.weight.numel()}, eps={self.eps:g}, offset={self.offset:g}"
