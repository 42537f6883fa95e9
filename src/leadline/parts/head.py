"""Where the stream ends: from vectors to logits.

    linear   W x + b, with its own W
    tied     E x, with the embedding's own table
    masked   BERT's: E N(gelu(W x + b)) + c
    none     the stream itself
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from leadline.catalog import Catalog
from leadline.parts.branches._branch import linear

__all__ = ["HEADS", "Head"]

HEADS: Catalog[type[Head]] = Catalog(
    "head", group="leadline.heads", given=("vocabulary", "width", "norm")
)


class Head(nn.Module):
    """What turns the last stream into logits. `table` is the embedding's, for those that use it."""

    ties: bool = False
    gives_logits: bool = True

    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        raise NotImplementedError

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        return iter(())


@HEADS.register("linear")
class LinearHead(Head):
    """A matrix of its own."""

    def __init__(
        self,
        vocabulary: int,
        width: int,
        norm: Callable[[int], nn.Module | None],
        *,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.projection = linear(width, vocabulary, bias=bias)

    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        return self.projection(x)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        yield "head", self.projection.weight


@HEADS.register("tied")
class TiedHead(Head):
    """The embedding's table, transposed."""

    ties = True

    def __init__(
        self, vocabulary: int, width: int, norm: Callable[[int], nn.Module | None]
    ) -> None:
        super().__init__()

    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        assert table is not None
        return F.linear(x, table)


@HEADS.register("masked")
class MaskedHead(Head):
    """BERT's head for masked words: a linear map, GELU, a norm, the embedding's table, a bias."""

    ties = True

    def __init__(
        self, vocabulary: int, width: int, norm: Callable[[int], nn.Module | None]
    ) -> None:
        super().__init__()
        self.transform = linear(width, width, bias=True)
        self.norm = norm(width)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        assert table is not None
        x = F.gelu(self.transform(x))
        return F.linear(x if self.norm is None else self.norm(x), table, self.bias)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        yield "transform", self.transform.weight


@HEADS.register("none")
class NoHead(Head):
    """No head: the model returns the stream."""

    gives_logits = False

    def __init__(
        self, vocabulary: int, width: int, norm: Callable[[int], nn.Module | None]
    ) -> None:
        super().__init__()

    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        return x
