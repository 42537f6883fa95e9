"""Tiny models whose answers can be computed by hand.

`Linear` is a Transformer without norms whose attention writes `alpha` times the mean token and
whose MLP writes `beta` times the token. With X = 1 m' + R (rows of R sum to zero) one layer gives

    m -> (1 + alpha)(1 + beta) m,        R -> (1 + beta) R

so norms, residuals, cosines and gradients are known at every depth.
"""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["Linear", "MeanAttention", "Scale"]


class MeanAttention(nn.Module):
    """alpha times the mean over the tokens: every token sees all of them."""

    def __init__(self, alpha: float) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor(alpha))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.alpha * x.mean(1, keepdim=True).expand_as(x)


class Scale(nn.Module):
    """beta times the token itself."""

    def __init__(self, beta: float) -> None:
        super().__init__()
        self.beta = nn.Parameter(torch.tensor(beta))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.beta * x


class _Layer(nn.Module):
    def __init__(self, alpha: float, beta: float) -> None:
        super().__init__()
        self.attention = MeanAttention(alpha)
        self.mlp = Scale(beta)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x)
        return x + self.mlp(x)


class Linear(nn.Module):
    """A stack of `MeanAttention` and `Scale` that takes the stream itself, [example, token, width]."""

    def __init__(self, depth: int = 4, *, alpha: float = 0.5, beta: float = -0.25) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer(alpha, beta) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x
