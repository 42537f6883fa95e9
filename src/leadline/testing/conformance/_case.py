"""The tiny model in which a part is checked, fresh and with stirred weights, and its inputs."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from leadline.catalog import Choice
from leadline.errors import RecipeError
from leadline.parts import PARTS, Recipe, Transformer
from leadline.parts.connections import CONNECTIONS
from leadline.parts.placements import PLACEMENTS
from leadline.testing.conformance._check import Failed

__all__ = ["PartCase", "companions", "gradients", "leaves", "stir"]

DEPTH, WIDTH, HEADS, VOCABULARY, CONTEXT = 3, 16, 2, 32, 12
STIR = 0.3
"""Standard deviation of what is added to every parameter of a stirred model."""


class PartCase:
    """One part, and the models that its checks share."""

    def __init__(self, kind: str, choice: Choice) -> None:
        self.kind = kind
        self.choice = choice

    @property
    def entry(self) -> Any:
        """The class or function that the catalog holds."""
        return PARTS[self.kind].get(self.choice.name)

    @cached_property
    def recipe(self) -> Recipe:
        """A tiny recipe with the part, and the first companion that does not refuse it."""
        refusal: RecipeError | None = None
        for companion in companions(self.kind):
            try:
                return self.recipe_with(companion)
            except RecipeError as error:
                refusal = error
        raise Failed(f"no recipe takes it: {refusal}")

    def recipe_with(self, companion: dict[str, str]) -> Recipe:
        """Return a tiny recipe with the part and a companion."""
        return Recipe(
            depth=DEPTH,
            width=WIDTH,
            heads=HEADS,
            vocabulary=VOCABULARY,
            context=CONTEXT,
            **{self.kind: self.choice, **companion},
        )

    def build(self, *, seed: int = 0, stirred: bool = False, **changes: Any) -> Transformer:
        """A new model in evaluation mode."""
        model = Transformer(self.recipe, seed=seed, **changes).eval()
        if stirred:
            stir(model)
        return model

    @cached_property
    def fresh(self) -> Transformer:
        """The model as it starts."""
        return self.build()

    @cached_property
    def stirred(self) -> Transformer:
        """The model after every parameter was moved at random: zeros and ones hide mistakes."""
        return self.build(stirred=True)

    @property
    def both(self) -> tuple[tuple[str, Transformer], ...]:
        return ("at the start", self.fresh), ("with stirred weights", self.stirred)

    def inputs(self, examples: int, tokens: int, *, seed: int = 0) -> Tensor:
        """Token ids, or the stream where the recipe has no embedding."""
        generator = torch.Generator().manual_seed(seed)
        if self.fresh.embedding.takes_ids:
            return torch.randint(VOCABULARY, (examples, tokens), generator=generator)
        return torch.randn(examples, tokens, WIDTH, generator=generator)

    def as_inputs(self, model: nn.Module, inputs: Tensor) -> Tensor:
        """The inputs in the number type of a model."""
        if not inputs.is_floating_point():
            return inputs
        return inputs.to(next(model.parameters()).dtype)


def companions(kind: str) -> list[dict[str, str]]:
    """List what may stand beside a part: placements beside a connection, and the reverse."""
    if kind == "connection":
        return [{"placement": name} for name in _first(PLACEMENTS.names(), "pre", "post")]
    if kind == "placement":
        return [{"connection": name} for name in _first(CONNECTIONS.names(), "identity")]
    return [{}]


def _first(names: Sequence[str], *preferred: str) -> list[str]:
    return [*preferred, *(name for name in names if name not in preferred)]


@torch.no_grad()
def stir(module: nn.Module, std: float = STIR) -> None:
    """Add seeded noise to every parameter, each by its name."""
    for name, parameter in module.named_parameters():
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.add_(std * noise.to(parameter.dtype))


def leaves(state: Any) -> Iterator[Tensor]:
    """Every tensor in a state, in order."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, tuple | list):
        for part in state:
            yield from leaves(part)
    elif isinstance(state, dict):
        for part in state.values():
            yield from leaves(part)


def gradients(model: nn.Module, output: Tensor) -> dict[str, Tensor | None]:
    """The gradient of every parameter, for a seeded random cotangent."""
    generator = torch.Generator().manual_seed(1)
    cotangent = torch.randn(output.shape, generator=generator).to(output.dtype)
    model.zero_grad(set_to_none=True)
    (output * cotangent).sum().backward()
    by_name = {n: p.grad for n, p in model.named_parameters() if p.requires_grad}
    model.zero_grad(set_to_none=True)
    return by_name
