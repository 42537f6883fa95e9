"""Leadline's own format: recipe.json and model.safetensors in one folder.

    recipe.json          {"format": "leadline", "version": 1, "seed": ..., "recipe": {...}}
                         and "tokenizer": "bytes" where the tokens are bytes of text
    model.safetensors    the state of the model by name

Any recipe can be saved in it. Parts of a plug-in must be loaded before the model is.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from leadline.errors import LoadingError, RecipeError, check_path
from leadline.parts.checkpoints._files import WEIGHTS, read_json, read_tensors, write_model
from leadline.parts.recipe import Recipe

if TYPE_CHECKING:
    from leadline.parts.transformer import Transformer

__all__ = [
    "BYTES",
    "RECIPE_FILE",
    "VERSION",
    "check_free",
    "load",
    "misfit",
    "save",
    "tokenizer_of",
]

RECIPE_FILE = "recipe.json"
VERSION = 1
BYTES = "bytes"
"""The tokenizer that takes a text as its UTF-8 bytes."""


def save(model: Transformer, folder: str | Path, *, tokenizer: str | None = None) -> None:
    """Write recipe and weights; a folder that holds another model is refused.

    `tokenizer` is "bytes" where the model reads the bytes of a text.
    """
    if tokenizer not in (None, BYTES):
        raise RecipeError(f"No tokenizer is called {tokenizer!r} here. Known: {BYTES}.")
    folder = check_path(folder, name="The folder", error=RecipeError)
    content: dict[str, Any] = {
        "format": "leadline",
        "version": VERSION,
        "seed": model.seed,
        "recipe": model.recipe.to_json(),
    }
    if tokenizer is not None:
        content["tokenizer"] = tokenizer
    check_free(folder, model.recipe)
    write_model(folder, description=(RECIPE_FILE, content), tensors=model.state_dict())


def load(folder: str | Path, *, model_class: type[Transformer]) -> Transformer:
    """The model that `save` wrote, in evaluation mode."""
    folder = check_path(folder, name="The folder", error=LoadingError)
    recipe, seed = _read_description(folder)
    model = model_class(recipe, seed=seed, draw=False)
    tensors = read_tensors(folder)
    kinds = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}
    state = model.state_dict(keep_vars=True)
    shapes = {name: tensor.shape for name, tensor in state.items()}
    if reason := misfit(shapes, {name: tensor.shape for name, tensor in tensors.items()}):
        raise RecipeError(f"The weights in {folder} do not fit its recipe: {reason}.")
    for name, tensor in state.items():
        if tensor.is_floating_point() != tensors[name].is_floating_point():
            raise RecipeError(
                f"The weights in {folder} do not fit its recipe: {name} is stored as "
                f"{tensors[name].dtype}, and {tensor.dtype} is needed."
            )
    if len(kinds) == 1:
        for tensor in state.values():  # what comes from the file is not converted for nothing
            tensor.data = tensor.data.new_empty(0)
        model = model.to(kinds.pop())
    for name, tensor in model.state_dict(keep_vars=True).items():
        tensor.data = tensors[name]
    return model.eval()


def tokenizer_of(folder: str | Path) -> str | None:
    """Return the tokenizer that a saved model names, or None."""
    tokenizer = read_json(Path(folder) / RECIPE_FILE).get("tokenizer")
    return tokenizer if isinstance(tokenizer, str) else None


def misfit(expected: dict[str, torch.Size], stored: dict[str, torch.Size]) -> str | None:
    """Say what is missing, unexpected or of another shape; None if everything fits."""
    if missing := [name for name in expected if name not in stored]:
        return f"{_first_three(missing)} {_is_or_are(missing)} missing"
    if extra := [name for name in stored if name not in expected]:
        return f"{_first_three(extra)} {_is_or_are(extra)} not expected"
    for name, shape in expected.items():
        if stored[name] != shape:
            return f"{name} is stored as {list(stored[name])}, and {list(shape)} is needed"
    return None


def _is_or_are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _first_three(names: list[str]) -> str:
    """The first three names, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _read_description(folder: Path) -> tuple[Recipe, int]:
    if not folder.is_dir():
        raise LoadingError(f"There is no folder {folder}; give one that save() wrote.")
    if not (folder / RECIPE_FILE).is_file():
        hint = " It holds a Hugging Face model: use from_hf." * (folder / "config.json").is_file()
        raise LoadingError(f"{folder} has no {RECIPE_FILE}; give a folder that save() wrote.{hint}")
    content = read_json(folder / RECIPE_FILE)
    version: Any = content.get("version")
    if content.get("format") != "leadline" or not isinstance(content.get("recipe"), dict):
        raise LoadingError(f"{folder / RECIPE_FILE} was not written by save(); it holds no recipe.")
    if version != VERSION:
        raise LoadingError(
            f"{folder / RECIPE_FILE} is of version {version!r}, and this Leadline reads version "
            f"{VERSION}; install the one that wrote it."
        )
    seed = content.get("seed", 0)
    return Recipe.from_json(content["recipe"]), seed if isinstance(seed, int) else 0


def check_free(folder: Path, recipe: Recipe) -> None:
    """Refuse a folder into which a model of the recipe cannot be saved, before it is needed."""
    above = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not above.is_dir():
        raise RecipeError(f"{above} is a file; give a folder to save into.")
    if not os.access(above, os.W_OK):
        raise RecipeError(f"Nothing can be written into {above}; give another folder to save into.")
    if (folder / RECIPE_FILE).is_file():
        if _read_description(folder)[0] != recipe:
            raise RecipeError(
                f"{folder} holds a model of another recipe, which would be lost; choose another "
                "folder, or remove it first."
            )
    elif (folder / WEIGHTS).exists() or (folder / "config.json").exists():
        raise RecipeError(
            f"{folder} holds a model of another format, which would be lost; choose another "
            "folder, or remove it first."
        )
