"""Two tokens (m, +a) and (m, -a): a mean and a difference that attention treats apart."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from leadline.instruments.collapse.measure import follow
from leadline.instruments.collapse.result import Collapse

__all__ = ["two_features"]


def two_features(mean_gain: float, *, start: float, depth: int, norm: bool) -> Collapse:
    """Attention on the second feature with logit 1 of a token with itself, values (v, 1).

    RMSNorm of width two makes (m, a) of length sqrt(2), so logits are halved with it.
    """
    own = 0.5 if norm else 1.0
    query = torch.tensor([[0.0, 0.0], [0.0, own]], dtype=torch.float64)
    key = torch.eye(2, dtype=torch.float64)
    value = torch.diag(torch.tensor([mean_gain, 1.0], dtype=torch.float64))

    def step(x: Any) -> Any:
        z = F.rms_norm(x, (2,)) if norm else x
        runs, tokens, width = x.shape
        q, k, v = (
            F.linear(z, weight).view(runs, tokens, 1, width).transpose(1, 2)
            for weight in (query, key, value)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, scale=1.0).transpose(1, 2)
        return mixed.reshape(runs, tokens, width)

    tokens = torch.tensor([[start, 1.0], [start, -1.0]], dtype=torch.float64)
    with torch.no_grad():
        return follow([step] * depth, tokens)
