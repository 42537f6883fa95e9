"""What a Transformer is made of, without its weights.

    Recipe(depth=48, width=256, connection="deepnorm", placement="post")

Parts are chosen by name, with options where they have some: "hyper(lanes=4)", or
Choice("hyper", lanes=4), or {"name": "hyper", "lanes": 4}. A recipe is checked when it is made:
what cannot be built is refused with what to change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leadline.catalog import Catalog, Choice
from leadline.errors import RecipeError, nearest_names, shown
from leadline.parts.branches import ATTENTIONS, MLPS
from leadline.parts.connections import CONNECTIONS
from leadline.parts.embedding import EMBEDDINGS
from leadline.parts.head import HEADS
from leadline.parts.inits import INITS
from leadline.parts.norms import NORMS
from leadline.parts.placements import PLACEMENTS
from leadline.parts.positions import POSITIONS

__all__ = ["PARTS", "Recipe"]

PARTS: dict[str, Catalog[Any]] = {
    "attention": ATTENTIONS,
    "positions": POSITIONS,
    "mlp": MLPS,
    "norm": NORMS,
    "connection": CONNECTIONS,
    "placement": PLACEMENTS,
    "init": INITS,
    "embedding": EMBEDDINGS,
    "head": HEADS,
}
"""The fields of a recipe that choose a part, and where the parts are."""

HEAD_WIDTH = 64
"""The width of a head where a recipe does not say how many heads there are."""

Spelling = str | Mapping[str, Any] | Choice


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a Transformer is made of. `init=None` is the connection's own init, otherwise gpt2."""

    depth: int = 12
    width: int = 256
    heads: int | None = None
    attention: Spelling = "multihead"
    positions: Spelling = "learned"
    mlp: Spelling = "gelu_tanh"
    norm: Spelling = "layernorm"
    connection: Spelling = "identity"
    placement: Spelling = "pre"
    init: Spelling | None = None
    embedding: Spelling = "token"
    head: Spelling = "linear"
    vocabulary: int = 256
    context: int = 256

    def __post_init__(self) -> None:
        for name in ("depth", "width", "vocabulary", "context"):
            _positive(name, getattr(self, name))
        if self.heads is None:
            heads = max(1, self.width // HEAD_WIDTH)
            object.__setattr__(self, "heads", heads if self.width % heads == 0 else 1)
        _positive("heads", self.heads)
        for field, catalog in PARTS.items():
            spelling = getattr(self, field)
            if spelling is None and field == "init":
                connection = CONNECTIONS.get(self.choice("connection").name)
                spelling = connection.init or "gpt2"
            if not isinstance(spelling, str | Mapping | Choice):
                raise RecipeError(
                    f"The {field} of a recipe is a name such as {catalog.names()[0]!r}, "
                    f"not a {type(spelling).__name__}."
                )
            object.__setattr__(self, field, catalog.check(spelling))
        self._check_shapes()
        self._check_pair()

    def choice(self, field: str) -> Choice:
        """The part that a field chooses."""
        return Choice.parse(getattr(self, field))

    @property
    def branches(self) -> tuple[str, ...]:
        """Which branches a layer has: attention, mlp, or both."""
        return tuple(f for f in ("attention", "mlp") if self.choice(f).name != "none")

    def but(self, **changes: Any) -> Recipe:
        """Return the recipe with some fields changed."""
        names = [field.name for field in dataclasses.fields(self)]
        for name in changes:
            if name not in names:
                raise RecipeError(_unknown_field(name, names))
        if "connection" in changes and "init" not in changes:
            old_init = CONNECTIONS.get(self.choice("connection").name).init or "gpt2"
            if self.choice("init") == Choice(old_init):
                changes["init"] = None
        if {"width", "heads"} & set(changes) == {"width"} and self.heads is not None:
            head_width = self.width // self.heads
            width = changes["width"]
            if isinstance(width, int) and width % head_width == 0 and width >= head_width:
                changes["heads"] = width // head_width
        return dataclasses.replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """The recipe as JSON."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {k: v.to_json() if isinstance(v, Choice) else v for k, v in fields.items()}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Recipe:
        """Read a recipe that `to_json` wrote."""
        if not isinstance(found, Mapping):
            raise RecipeError(f"A recipe in JSON is a mapping of its fields, not {shown(found)}.")
        names = [field.name for field in dataclasses.fields(cls)]
        for name in found:
            if name not in names:
                raise RecipeError(_unknown_field(name, names))
        return cls(**found)

    @classmethod
    def named(cls, name: str) -> Recipe:
        """A published model's recipe: gpt2, bert-base, llama, ...; `leadline list recipes`."""
        from leadline.parts.recipes import RECIPES

        return RECIPES.build(name)

    def __str__(self) -> str:
        lines = [f"{f.name:<11} {getattr(self, f.name)}" for f in dataclasses.fields(self)]
        return "\n".join(lines)

    def _check_shapes(self) -> None:
        assert self.heads is not None
        if not self.branches:
            raise RecipeError(
                "A recipe with neither attention nor an MLP computes nothing; choose one of them."
            )
        if "attention" not in self.branches:
            return
        if self.choice("attention").options.get("head_width") is None and self.width % self.heads:
            heads = self.heads
            fits = [n for n in range(1, self.width + 1) if self.width % n == 0]
            near = sorted(sorted(fits, key=lambda n: abs(n - heads))[:4])
            some = "".join(f"{n}, " for n in near[:-2]) + " or ".join(map(str, near[-2:]))
            raise RecipeError(
                f"The width {self.width} cannot be divided among {heads} heads; choose {some} "
                f"head{'s' if near[-1] > 1 else ''}, or another width."
            )

    def _check_pair(self) -> None:
        placement = PLACEMENTS.build(self.choice("placement"))
        if reason := placement.refuses(self.branches):
            raise RecipeError(
                f"The placement {self.choice('placement').name!r} makes no sense here: {reason}; "
                "choose another placement, or add the branch."
            )
        if self.choice("norm").name == "none" and placement.settles and self._amplifies():
            raise RecipeError(
                f"The connection {self.choice('connection').name!r} needs a norm after each "
                "addition, and the recipe's norm is none; choose layernorm or rmsnorm."
            )
        sublayers = 1 if placement.joined else len(self.branches)
        connection = CONNECTIONS.get(self.choice("connection").name)
        if reason := connection.refuses(placement, sublayers):
            raise RecipeError(
                f"The connection {self.choice('connection').name!r} makes no sense with the "
                f"placement {self.choice('placement').name!r}: {reason}."
            )
        if (
            self.choice("head").name in ("tied", "masked")
            and self.choice("embedding").name == "none"
        ):
            raise RecipeError(
                "A tied head uses the embedding's table, and this recipe has no embedding; "
                "choose the head linear or none."
            )

    def _amplifies(self) -> bool:
        return CONNECTIONS.get(self.choice("connection").name).amplifies


def _positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise RecipeError(f"The {name} of a recipe is a whole number from 1 on, not {value!r}.")


def _unknown_field(name: str, names: list[str]) -> str:
    near = nearest_names(name, names, at_most=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"A recipe has no field {name!r}.{hint} Its fields: {', '.join(names)}."
