"""Where the stream ends: from vectors to logits.

    linear   W x + b, with its own W
    tied     E x, with the embedding's own table
    masked   BERT's: E N(gelu(W x + b)) + c
    none     the stream itself

The closing norm of the placement stands before it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from leadline.catalog import Catalog
from leadline.parts.branches.branch import linear
from leadline.parts.options import flag

__all__ = ["HEADS", "Head", "LogitHead"]

HEADS: Catalog[type[Head]] = Catalog(
    "head", group="leadline.heads", arguments=("vocabulary", "width", "norm")
)


class Head(nn.Module, ABC):
    """What turns the last stream into logits. `table` is the embedding's, for those that use it."""

    ties: bool = False
    gives_logits: bool = True

    @abstractmethod
    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        """What the model returns."""

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        return iter(())


class LogitHead(Head):
    """A head whose last step is a matrix."""

    @abstractmethod
    def linear(self, x: Tensor, table: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """The last step taken apart: what is multiplied, the matrix, the bias."""

    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        return F.linear(*self.linear(x, table))


@HEADS.register("linear")
class LinearHead(LogitHead):
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
        self.projection = linear(width, vocabulary, bias=flag("linear", "bias", bias))

    def linear(self, x: Tensor, table: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        return x, self.projection.weight, self.projection.bias

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        yield "head", self.projection.weight


@HEADS.register("tied")
class TiedHead(LogitHead):
    """The embedding's table, transposed."""

    ties = True

    def __init__(
        self, vocabulary: int, width: int, norm: Callable[[int], nn.Module | None]
    ) -> None:
        super().__init__()

    def linear(self, x: Tensor, table: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        assert table is not None
        return x, table, None


@HEADS.register("masked")
class MaskedHead(LogitHead):
    """BERT's head for masked words: a linear map, GELU, a norm, the embedding's table, a bias."""

    ties = True

    def __init__(
        self, vocabulary: int, width: int, norm: Callable[[int], nn.Module | None]
    ) -> None:
        super().__init__()
        self.transform = linear(width, width, bias=True)
        self.norm = norm(width)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def linear(self, x: Tensor, table: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        assert table is not None
        x = F.gelu(self.transform(x))
        return x if self.norm is None else self.norm(x), table, self.bias

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
