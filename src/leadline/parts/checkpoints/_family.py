"""What a family of checkpoints is: how a recipe and a Hugging Face model become each other.

    recipe(config) -> Recipe         their configuration to a recipe
    config(recipe) -> dict           and back
    rows(recipe)                     which of our weights is which of theirs
    twins(recipe)                    theirs that are stored twice, where weights are tied

The catalog's names are the model types of transformers. To add a family, put one file into this
folder. `config` need not check whether the family can be what the recipe says: `config_for`
reads its answer back and refuses one that means something else. Dropout is not part of a recipe: it is left
out on the way in and written as 0 on the way out. A recipe's init is not part of a configuration.
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
from leadline.parts.checkpoints._table import WeightRow
from leadline.parts.recipe import PARTS, Recipe

__all__ = ["CHECKPOINTS", "TOKENS", "Family", "compare_config", "config_for", "meaning"]

TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")
"""Fields that mean nothing to a recipe and are kept from a checkpoint to the next."""


class Family(ABC):
    """Translates recipes and weights between Leadline and one model type of transformers."""

    prefix: ClassVar[str]
    """What stands before all weights but the head's, where there is a head."""
    head_names: ClassVar[tuple[str, ...]] = ("lm_head.",)
    """How the weights of a head begin."""
    class_with_head: ClassVar[str]
    """The class of transformers with a head for tokens."""
    class_without_head: ClassVar[str]
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
    def rows(self, recipe: Recipe) -> Iterator[WeightRow]:
        """Where every weight stands on both sides."""

    def twins(self, recipe: Recipe) -> dict[str, str]:
        """Map the name of each copy to the name of its original."""
        return {}

    def full_name(self, name: str) -> str:
        """The full name of a stored tensor, which may lack the prefix."""
        if name.startswith((self.prefix, *self.head_names)):
            return name
        return self.prefix + name

    def stored_name(self, name: str, head: str) -> str:
        """The name under which a tensor is written: without the prefix where there is no head."""
        return name.removeprefix(self.prefix) if head == "none" else name


CHECKPOINTS: Catalog[type[Family]] = Catalog(
    "checkpoint family", package="leadline.parts.checkpoints", group="leadline.checkpoints"
)


def meaning(recipe: Recipe) -> dict[str, Any]:
    """Spell out a recipe, with every option and every None resolved, without its init.

    Two recipes of one meaning compute the same with the same weights.
    """
    assert recipe.heads is not None
    fields: dict[str, Any] = {
        name: getattr(recipe, name) for name in ("depth", "width", "heads", "vocabulary", "context")
    }
    for field, catalog in PARTS.items():
        if field == "init":
            continue
        choice = recipe.choice(field)
        options = {key: p.default for key, p in catalog.options(choice.name).items()}
        fields[field] = {"name": choice.name, **options, **choice.options}
    attention, mlp, embedding = fields["attention"], fields["mlp"], fields["embedding"]
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
    return fields


def config_for(kind: str, recipe: Recipe) -> dict[str, Any]:
    """Return the configuration of a family that means the same as a recipe, or refuse."""
    config, reasons = compare_config(kind, recipe)
    if reasons:
        raise RecipeError(
            f"A {kind} checkpoint cannot be this model: {reasons[0]}. Change the recipe, choose "
            "another family, or write Leadline's own format with save()."
        )
    return config


def compare_config(kind: str, recipe: Recipe) -> tuple[dict[str, Any], list[str]]:
    """Return the configuration of a family for a recipe, and how its meaning differs from it."""
    family = CHECKPOINTS.get(kind)()
    is_bare = recipe.choice("head").name == "none"
    config = {
        "model_type": kind,
        "architectures": [family.class_without_head if is_bare else family.class_with_head],
        **family.config(recipe),
    }
    wanted, written = meaning(recipe), meaning(family.recipe(config))
    reasons: list[str] = []
    for field in (f for f in wanted if wanted[f] != written[f]):
        theirs, ours = _differing(written[field], wanted[field])
        reasons.append(f"its {field} would be {theirs}, and the recipe has {ours}")
    return config, reasons


def _differing(theirs: Any, ours: Any) -> tuple[str, str]:
    """Return two values in words, or only the options in which two parts of one name differ."""
    if not isinstance(theirs, dict) or not isinstance(ours, dict):
        return str(theirs), str(ours)
    if theirs["name"] != ours["name"]:
        return theirs["name"], ours["name"]
    options = [key for key in ours if ours[key] != theirs[key]]

    def describe(part: dict[str, Any]) -> str:
        return f"{part['name']}({', '.join(f'{key}={part[key]}' for key in options)})"

    return describe(theirs), describe(ours)
