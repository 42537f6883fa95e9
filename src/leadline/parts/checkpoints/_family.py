"""What a family of checkpoints is: how a recipe and a Hugging Face model become each other.

    recipe(config) -> Recipe         their configuration to a recipe
    config(recipe) -> dict           and back
    rows(recipe)                     which of our weights is which of theirs
    twins(recipe)                    theirs that are stored twice, where weights are tied

The catalog's names are the model types of transformers. To add a family, put one file into this
folder. `config` need not check whether the family can be what the recipe says: `expressed` reads
its answer back and refuses what came out otherwise. Dropout is no part of a recipe: it is left
out on the way in and written as 0 on the way out. A recipe's init is no part of a configuration.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from leadline.catalog import Catalog
from leadline.errors import RecipeError
from leadline.parts.branches import MLPS
from leadline.parts.branches.mlp.perceptron import Gated, gated_width
from leadline.parts.checkpoints._table import Row
from leadline.parts.recipe import PARTS, Recipe

__all__ = ["CHECKPOINTS", "TOKENS", "Family", "compared", "expressed", "meaning"]

TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")
"""Fields that mean nothing to a recipe and are kept from a checkpoint to the next."""


class Family(ABC):
    """See the module's first lines."""

    prefix: ClassVar[str]
    """What stands before all weights but the head's, where there is a head."""
    head_names: ClassVar[tuple[str, ...]] = ("lm_head.",)
    """How the weights of a head begin."""
    whole: ClassVar[str]
    """The class of transformers with a head for tokens."""
    bare: ClassVar[str]
    """The class without a head."""
    left_out: ClassVar[tuple[str, ...]] = ()
    """Patterns of tensors that a checkpoint may hold and that we have no use for."""

    @abstractmethod
    def recipe(self, config: Mapping[str, Any]) -> Recipe:
        """The recipe of a configuration."""

    @abstractmethod
    def config(self, recipe: Recipe) -> dict[str, Any]:
        """The configuration of a recipe."""

    @abstractmethod
    def rows(self, recipe: Recipe) -> Iterator[Row]:
        """Where every weight stands on both sides."""

    def twins(self, recipe: Recipe) -> dict[str, str]:
        """Name of the copy to name of the original."""
        return {}

    def named(self, name: str) -> str:
        """The full name of a stored tensor, which may lack the prefix."""
        if name.startswith((self.prefix, *self.head_names)):
            return name
        return self.prefix + name

    def stored(self, name: str, head: str) -> str:
        """The name under which a tensor is written: without the prefix where there is no head."""
        return name.removeprefix(self.prefix) if head == "none" else name


CHECKPOINTS: Catalog[type[Family]] = Catalog(
    "checkpoint family", package="leadline.parts.checkpoints", group="leadline.checkpoints"
)


def meaning(recipe: Recipe) -> dict[str, Any]:
    """A recipe with every option said and every None resolved, without its init.

    Two recipes of one meaning compute the same with the same weights.
    """
    assert recipe.heads is not None
    found: dict[str, Any] = {
        name: getattr(recipe, name) for name in ("depth", "width", "heads", "vocabulary", "context")
    }
    for field, catalog in PARTS.items():
        if field == "init":
            continue
        choice = recipe.choice(field)
        options = {key: p.default for key, p in catalog.options(choice.name).items()}
        found[field] = {"name": choice.name, **options, **choice.options}
    attention, mlp, embedding = found["attention"], found["mlp"], found["embedding"]
    if attention["name"] == "multihead":
        attention["groups"] = attention["groups"] or recipe.heads
        attention["head_width"] = attention["head_width"] or recipe.width // recipe.heads
        if attention["output_bias"] is None:
            attention["output_bias"] = attention["bias"]
        if attention["scale"] is None:
            attention["scale"] = attention["head_width"] ** -0.5
    if "hidden" in mlp and mlp["hidden"] is None:
        kind = MLPS.get(mlp["name"])
        gated = isinstance(kind, type) and issubclass(kind, Gated)
        mlp["hidden"] = gated_width(recipe.width) if gated else 4 * recipe.width
    if embedding.get("scale") == "sqrt_width":
        embedding["scale"] = math.sqrt(recipe.width)
    return found


def expressed(kind: str, recipe: Recipe) -> dict[str, Any]:
    """The configuration of a family that means the same as a recipe, or a refusal."""
    config, reasons = compared(kind, recipe)
    if reasons:
        raise RecipeError(
            f"A {kind} checkpoint cannot be this model: {reasons[0]}. Change the recipe, choose "
            "another family, or write Leadline's own format with save()."
        )
    return config


def compared(kind: str, recipe: Recipe) -> tuple[dict[str, Any], list[str]]:
    """The configuration of a family for a recipe, and how what it means differs from it."""
    family = CHECKPOINTS.get(kind)()
    bare = recipe.choice("head").name == "none"
    config = {
        "model_type": kind,
        "architectures": [family.bare if bare else family.whole],
        **family.config(recipe),
    }
    asked, got = meaning(recipe), meaning(family.recipe(config))
    reasons: list[str] = []
    for field in (f for f in asked if asked[f] != got[f]):
        theirs, ours = _differing(got[field], asked[field])
        reasons.append(f"its {field} would be {theirs}, and the recipe has {ours}")
    return config, reasons


def _differing(theirs: Any, ours: Any) -> tuple[str, str]:
    """Two values that differ, or what differs in two parts of one name."""
    if not isinstance(theirs, dict) or not isinstance(ours, dict):
        return str(theirs), str(ours)
    if theirs["name"] != ours["name"]:
        return theirs["name"], ours["name"]
    options = [key for key in ours if ours[key] != theirs[key]]

    def shown(part: dict[str, Any]) -> str:
        return f"{part['name']}({', '.join(f'{key}={part[key]}' for key in options)})"

    return shown(theirs), shown(ours)
