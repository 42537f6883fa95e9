"""Learned positions: a vector for each place, added to the token's embedding (GPT-2, BERT)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from leadline.parts.positions._positions import POSITIONS, Positions


@POSITIONS.register("learned")
class Learned(Positions):
    """A learned vector per position, added to the embedding."""

    def __init__(self, width: int, context: int, head_width: int) -> None:
        super().__init__()
        self.limit = context
        # The rows are left to the init. On `meta`, where skip_init draws them, normal_ imports the
        # compiler of torch, which takes a second.
        self.table = nn.Embedding.from_pretrained(torch.empty(context, width), freeze=False)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + self.table(positions)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        yield "positions", self.table.weight
