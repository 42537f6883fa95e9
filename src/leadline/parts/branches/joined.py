"""A branch made of two: attention and MLP read the same stream and are added together.

    u = A(N(x)) + M(N(x))                one norm for both, outside (GPT-J)
    u = A(N_1(x)) + M(N_2(x))            one norm for each (GPT-NeoX)

Wang and Komatsuzaki 2021 (GPT-J).
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from leadline.parts.branches.branch import Branch, Run

__all__ = ["Joined"]


class Joined(Branch):
    """Attention plus MLP. The norms are None where one norm outside serves both."""

    def __init__(
        self,
        attention: Branch,
        mlp: Branch,
        *,
        attention_norm: nn.Module | None,
        mlp_norm: nn.Module | None,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.mlp = mlp
        self.attention_norm = attention_norm
        self.mlp_norm = mlp_norm
        self.causal = attention.causal

    def forward(self, x: Tensor, run: Run) -> Tensor:
        a = x if self.attention_norm is None else self.attention_norm(x)
        m = x if self.mlp_norm is None else self.mlp_norm(x)
        return self.attention(a, run) + self.mlp(m, run)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        yield from self.attention.weights()
        yield from self.mlp.weights()
