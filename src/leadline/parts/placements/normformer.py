"""NormFormer: pre-norm with three more operations in each layer.

    x' = x + N(W_o [s_1 head_1, ..., s_H head_H])      attention of N(x), s = 1 at first
    x' = x + W_2 N(f(W_1 N(x)))                        MLP

and one more norm after the last layer. Shleifer et al. 2021 (arXiv 2110.09456). No constants but
the start of the head scales s. The learned scale of the residual, which the paper adds in its
smaller models, is a matter of the connection. It costs two norms per write, the one in the MLP as
wide as its hidden layer, and one number per head.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leadline.parts.place import Place
from leadline.parts.placements._placement import PLACEMENTS, Placement


class HeadScale(nn.Module):
    """A learned number for every head of [example, head, token, head width]."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(heads))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight.to(x.dtype)[:, None, None]


@PLACEMENTS.register("normformer")
class NormFormer(Placement):
    """Pre-norm, a norm on attention's output, a scale per head, a norm in the MLP."""

    formula = "x + N(A(N(x))), then x + W N(M'(N(x)))"

    def enter(self, place: Place) -> nn.Module | None:
        return place.norm(place.width)

    def exit(self, place: Place) -> nn.Module | None:
        return place.norm(place.width) if place.branch == "attention" else None

    def inside(self, place: Place, point: str, width: int) -> nn.Module | None:
        if point == "heads":
            return HeadScale(width)
        return place.norm(width) if point == "hidden" else None
