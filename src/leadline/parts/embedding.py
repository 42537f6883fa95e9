"""Where the stream begins: from token ids to vectors.

    token    x = scale E[id] + type vector, positions added, then a norm where asked
    none     the model is given the stream itself, [example, token, width]

`scale` is a number, or "sqrt_width" (Gemma). BERT adds one of `types` vectors and norms the
sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from leadline.catalog import Catalog
from leadline.errors import InputError, RecipeError
from leadline.parts.options import flag, number, whole_number
from leadline.parts.positions import Positions

__all__ = ["EMBEDDINGS", "Embedding"]

EMBEDDINGS: Catalog[type[Embedding]] = Catalog(
    "embedding",
    group="leadline.embeddings",
    arguments=("vocabulary", "width", "positions", "norm", "opening"),
)


class Embedding(nn.Module):
    """What turns inputs into the first stream."""

    takes_ids: bool = True

    def __init__(self, positions: Positions) -> None:
        super().__init__()
        self.positions = positions

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        return self.positions.weights()


@EMBEDDINGS.register("token")
class TokenEmbedding(Embedding):
    """A learned vector per token id."""

    def __init__(
        self,
        vocabulary: int,
        width: int,
        positions: Positions,
        norm: Callable[[int], nn.Module | None],
        opening: bool,
        *,
        scale: float | str = 1.0,
        types: int = 0,
        normed: bool = False,
    ) -> None:
        super().__init__(positions)
        if isinstance(scale, str) and scale != "sqrt_width":
            raise RecipeError(f"The embedding's scale is {scale!r}; give a number or sqrt_width.")
        self.scale = math.sqrt(width) if isinstance(scale, str) else number("token", "scale", scale)
        self.tokens = _table(vocabulary, width)
        types = whole_number("token", "types", types, least=0)
        self.types = _table(types, width) if types else None
        self.norm = norm(width) if flag("token", "normed", normed) or opening else None

    def forward(self, ids: Tensor, positions: Tensor, types: Tensor | None) -> Tensor:
        x = self.tokens(ids)
        if self.scale != 1.0:
            # Gemma rounds the scale to the number type of the stream.
            x = x * torch.tensor(self.scale, dtype=x.dtype)
        if self.types is not None:
            x = x + (self.types.weight[0] if types is None else self.types(types))
        elif types is not None and bool(types.any()):
            raise InputError(
                "token_type_ids were given, and the model has no types; leave them out, or build "
                "it with embedding='token(types=2)'."
            )
        x = self.positions.embed(x, positions)
        return x if self.norm is None else self.norm(x)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        yield "embedding", self.tokens.weight
        if self.types is not None:
            yield "types", self.types.weight
        yield from super().weights()


def _table(rows: int, width: int) -> nn.Embedding:
    """A table whose rows are left to the init (skip_init would import the compiler of torch)."""
    return nn.Embedding.from_pretrained(torch.empty(rows, width), freeze=False)


@EMBEDDINGS.register("none")
class StreamInput(Embedding):
    """No embedding: the model is called with the stream."""

    takes_ids = False

    def __init__(
        self,
        vocabulary: int,
        width: int,
        positions: Positions,
        norm: Callable[[int], nn.Module | None],
        opening: bool,
    ) -> None:
        super().__init__(positions)
        self.norm = norm(width) if opening else None

    def forward(self, x: Tensor, positions: Tensor, types: Tensor | None) -> Tensor:
        x = self.positions.embed(x, positions)
        return x if self.norm is None else self.norm(x)
