"""What positions are: something added to the embedding, or a turn of queries and keys.

    embed(x, positions) -> x             once, at the embedding
    rotation(positions, dtype)           once per pass: a function that turns [..., head, token,
                                         head width], or None

`limit` is the number of tokens that there are positions for, or None where there is no limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from leadline.catalog import Catalog

__all__ = ["POSITIONS", "Positions"]

POSITIONS: Catalog[Any] = Catalog(
    "positions",
    package="leadline.parts.positions",
    group="leadline.positions",
    arguments=("width", "context", "head_width"),
)


class Positions(nn.Module):
    """Tells tokens apart by their positions: adds to the embedding, or turns queries and keys."""

    limit: int | None = None

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x

    def rotation(self, positions: Tensor, dtype: torch.dtype) -> Callable[[Tensor], Tensor] | None:
        return None

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        return iter(())
