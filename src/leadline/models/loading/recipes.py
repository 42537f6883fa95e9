"""Build a Transformer from a recipe: by name, from a file, or from the defaults, with changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch

from leadline.errors import LeadlineError, LoadingError, words_of
from leadline.models.loading.request import LoadedModel, Request, read_json, refuse_giant
from leadline.parts import Recipe, Transformer
from leadline.parts.checkpoints import RECIPE_FILE

__all__ = ["DEFAULT", "from_recipe", "named_recipe", "recipe_of"]

DEFAULT = "default"
"""The name of the recipe in which no field is set."""


def from_recipe(request: Request, *, seed: int) -> LoadedModel:
    """Build the model with random weights; its name lists the fields that were changed."""
    name, recipe = named_recipe(request)
    if name == DEFAULT:  # so that what follows from a field, such as the heads, follows from it
        changed = Recipe.from_json(request.overrides)
    else:
        changed = recipe.but(**request.overrides)
    _refuse_giant(changed, request)
    try:
        model = Transformer(changed, seed=seed)
    except RuntimeError as error:
        if "memory" not in str(error):
            raise
        raise LoadingError(
            f"The recipe {name} with these sizes does not fit into memory ({words_of(error, first_line=True).rstrip('.')}); "
            "set a smaller depth, width or vocabulary (overrides={'depth': ...}, --set depth=...)."
        ) from error
    if request.dtype is not None:
        model.to(request.dtype)
    fields = [f for f in request.overrides if getattr(recipe, f) != getattr(changed, f)]
    changes = ", ".join(f"{field}={getattr(changed, field)}" for field in fields)
    return LoadedModel(model, f"{name}({changes})" if changes else name, f"recipe {name}")


def recipe_of(source: str | None, changes: Mapping[str, Any]) -> Recipe:
    """The recipe of a name or a file, with changes; of the changes alone where none is named."""
    if source is None or source == DEFAULT:
        return Recipe.from_json(changes)
    request = Request(source, dict(changes), None, trust_remote_code=False)
    return named_recipe(request)[1].but(**changes)


def named_recipe(request: Request) -> tuple[str, Recipe]:
    """The name and the recipe that a request means: of a folder, a file, or the catalog."""
    source, path = request.source, request.path
    if path.is_dir() and (path / RECIPE_FILE).is_file():
        path = path / RECIPE_FILE
    if path.is_file() or path.suffix.lower() == ".json":
        if not path.is_file():
            raise LoadingError(f"There is no file {path}; give a recipe's name, or its file.")
        return str(path), _recipe_in(read_json(path), str(path))
    return source, Recipe.named(source)


def _recipe_in(content: Any, place: str) -> Recipe:
    """The recipe in a file: its fields, or what `Transformer.save` wrote around them."""
    if isinstance(content, Mapping):
        fields = cast("Mapping[str, Any]", content)
        inner = fields.get("recipe", fields)
        if isinstance(inner, Mapping):
            return Recipe.from_json(cast("Mapping[str, Any]", inner))
    raise LoadingError(
        f'{place} holds no recipe; write its fields as JSON, such as {{"depth": 48, "width": 128}}.'
    )


def _refuse_giant(recipe: Recipe, request: Request) -> None:
    """Count the parameters without holding their numbers, before allocating memory."""
    tables = recipe.vocabulary if recipe.choice("embedding").name != "none" else 0
    least = recipe.width * (tables + recipe.depth * len(recipe.branches) * recipe.width)
    refuse_giant(least, request, at_least=True)
    try:
        with torch.device("meta"):
            model = Transformer(recipe, draw=False)
    except LeadlineError:
        raise
    except Exception:
        # Some parts compute with numbers while they are built; they cannot be counted this way.
        return
    refuse_giant(sum(p.numel() for p in model.parameters()), request)
