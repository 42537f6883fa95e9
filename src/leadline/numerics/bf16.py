"""What a write loses when the stream is kept in bfloat16.

With r() rounding to bfloat16 the stream holds r(x), and after the write r(r(x) + u). The share
lost is |r(r(x) + u) - r(x) - u| / |u|: about 0.02, 0.17, 0.5, 0.8 when |u| / |x| is 0.1, 0.01,
0.003, 0.001.
"""

from __future__ import annotations

import torch

from leadline.numerics.devices import by_rows
from leadline.numerics.tokens import Tokens

__all__ = ["write_loss"]


def write_loss(update: Tokens, stream: Tokens) -> torch.Tensor:
    """[example, token]: the share of the update that rounding takes; 0 for a zero update."""
    lost = by_rows(_lost, stream.x, update.x)
    return torch.where(update.norm == 0, 0.0, lost / update.norm)


def _lost(stream: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
    # r(x) + u is rounded to float32 here, which is nothing beside the rounding to bfloat16.
    wanted = stream.bfloat16().to(update.dtype).add_(update)
    return torch.linalg.vector_norm(wanted.bfloat16().to(wanted.dtype).sub_(wanted), dim=-1)
