"""Hugging Face checkpoints in and out.

In: the configuration becomes a recipe, every stored tensor is matched with one of ours and its
shape compared, and only then is a model made: a partly loaded one is never returned. Out: the
recipe becomes a configuration that means the same, or is refused, and the tensors take the way
back.

A checkpoint keeps its number type; where its tensors have several, the widest holds for all.
A class with a language head must have one (tied or stored); a class without (XModel) gives a
model that returns the stream.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from leadline.errors import LoadingError, RecipeError, nearest_names
from leadline.parts.checkpoints._family import (
    CHECKPOINTS,
    TOKENS,
    Family,
    compare_config,
    config_for,
    meaning,
)
from leadline.parts.checkpoints._files import INDEX, WEIGHTS, read_json, read_tensors, write_model
from leadline.parts.checkpoints._native import RECIPE_FILE, misfit
from leadline.parts.recipe import Recipe

if TYPE_CHECKING:
    from leadline.parts.transformer import Transformer

__all__ = ["Origin", "from_hf", "to_hf"]

CONFIG = "config.json"


@dataclass(frozen=True)
class Origin:
    """Where the weights of a model came from, and what was left out of them."""

    family: str
    left_out: tuple[str, ...]
    """Tensors of the checkpoint that a model of ours has no use for."""
    tokens: Mapping[str, Any]
    """The ids of special tokens in its configuration."""


def from_hf(
    source: nn.Module | str | Path,
    *,
    model_class: type[Transformer],
    dtype: torch.dtype | None = None,
) -> Transformer:
    """The same model as a transformers model in memory or a folder, in evaluation mode."""
    if isinstance(dtype, str):
        raise LoadingError(f"dtype is the text {dtype!r}; give torch.{dtype}.")
    if not isinstance(source, nn.Module | str | Path):
        raise LoadingError(
            f"A {type(source).__name__} was given; give a model of transformers, or the folder of "
            "a checkpoint."
        )
    if isinstance(source, nn.Module):
        config, tensors = _in_memory(source)
        place = f"this {type(source).__name__}"
    else:
        config, tensors = _in_folder(Path(source))
        place = str(source)
    kind = config["model_type"]
    family = _family(kind, place)
    recipe = family.recipe(config)
    named, left_out = _named(family, tensors, place)
    _without_twins(family, recipe, named, place)
    model = model_class(recipe, draw=False)
    state = _join(family, model, named, place=place, dtype=dtype)
    model.load_state_dict(state, assign=True)
    model = model.to(next(iter(state.values())).device)
    model.origin = Origin(kind, left_out, {k: config[k] for k in TOKENS if k in config})
    return model.eval()


def to_hf(model: Transformer, folder: str | Path, *, family: str | None = None) -> None:
    """Write config.json and model.safetensors, which AutoModel.from_pretrained loads.

    Without a family, the one that the weights came from or the first that can be this model.
    """
    folder = Path(folder)
    recipe = model.recipe
    kind, config = _choose_family(model, family)
    special_tokens = model.origin.tokens if model.origin is not None else {}
    config |= {name: special_tokens.get(name) for name in TOKENS}
    config["dtype"] = str(next(model.parameters()).dtype).removeprefix("torch.")
    _check_free(folder, kind, recipe)
    head, entry = recipe.choice("head").name, CHECKPOINTS.get(kind)()
    state, tensors = model.state_dict(), dict[str, Tensor]()
    for row in entry.rows(recipe):
        parts = row.change.split(state[row.ours])
        tensors |= {entry.stored_name(n, head): p for n, p in zip(row.theirs, parts, strict=True)}
    write_model(folder, description=(CONFIG, config), tensors=tensors)


# --- in ------------------------------------------------------------------------------------


def _in_memory(model: nn.Module) -> tuple[dict[str, Any], dict[str, Tensor]]:
    config = getattr(model, "config", None)
    if not hasattr(config, "to_dict") or not getattr(config, "model_type", None):
        raise LoadingError(
            f"A {type(model).__name__} is not a model of transformers: it has no configuration with "
            "a model_type. Give one that has, or the folder of a checkpoint."
        )
    content = {**config.to_dict(), "architectures": [type(model).__name__]}  # type: ignore[union-attr]
    return content, model.state_dict()


def _in_folder(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if not folder.is_dir():
        raise LoadingError(
            f"There is no folder {folder}; give the folder of a checkpoint, or a model of "
            "transformers in memory."
        )
    if not (folder / CONFIG).is_file():
        hint = (
            " It holds a model in Leadline's own format: use load."
            * (folder / RECIPE_FILE).is_file()
        )
        raise LoadingError(
            f"{folder} has no {CONFIG}; give a folder that save_pretrained wrote.{hint}"
        )
    config = read_json(folder / CONFIG)
    if not isinstance(config.get("model_type"), str):
        raise LoadingError(f"{folder / CONFIG} names no model_type, so its family is unknown.")
    _family(config["model_type"], str(folder))  # before gigabytes are read
    return config, read_tensors(folder)


def _family(kind: str, place: str) -> Family:
    if kind in CHECKPOINTS:
        return CHECKPOINTS.get(kind)()
    near = nearest_names(kind, CHECKPOINTS.names(), at_most=1)
    hint = f" The nearest known family is {near[0]!r}." if near else ""
    raise RecipeError(
        f"{place} is of the family {kind!r}, which cannot be built here.{hint} "
        f"Known: {', '.join(CHECKPOINTS.names())}."
    )


def _named(
    family: Family, tensors: Mapping[str, Tensor], place: str
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """The tensors under their full names, and the names of those that are left out."""
    named: dict[str, Tensor] = {}
    left_out: list[str] = []
    for name, tensor in tensors.items():
        full = family.full_name(name)
        if any(re.search(pattern, full) for pattern in family.left_out):
            left_out.append(name)
            continue
        if full in named:
            raise RecipeError(f"{place} stores {full} twice, once as {name}; fetch it again.")
        named[full] = tensor
    return named, tuple(left_out)


def _without_twins(family: Family, recipe: Recipe, named: dict[str, Tensor], place: str) -> None:
    """Drop the second copy of tied weights; refuse where the copies differ."""
    for copy, original in family.twins(recipe).items():
        if copy not in named:
            continue
        second = named.pop(copy)
        first = named.setdefault(original, second)
        if first.shape != second.shape or not torch.equal(first, second):
            raise RecipeError(
                f"{place} says that {copy} and {original} are one (tie_word_embeddings), and "
                "they differ; if it is not tied, set tie_word_embeddings to false in its "
                "configuration."
            )


def _join(
    family: Family,
    model: Transformer,
    named: dict[str, Tensor],
    *,
    place: str,
    dtype: torch.dtype | None,
) -> dict[str, Tensor]:
    """Return our state from their tensors, after checking every name and shape."""
    ours = model.state_dict()
    rows = list(family.rows(model.recipe))
    assert {row.ours for row in rows} == set(ours), "the table names other weights than the model"
    expected: dict[str, torch.Size] = {}
    for row in rows:
        parts = row.change.split(torch.empty(ours[row.ours].shape, device="meta"))
        expected |= {name: part.shape for name, part in zip(row.theirs, parts, strict=True)}
    if reason := misfit(expected, {name: tensor.shape for name, tensor in named.items()}):
        raise RecipeError(
            f"The weights of {place} do not fit its configuration: {reason}. Nothing was loaded; "
            "check that configuration and weights belong together."
        )
    for name, tensor in named.items():
        if not tensor.is_floating_point() or tensor.is_meta:
            raise RecipeError(
                f"{name} of {place} is stored as {tensor.dtype} on {tensor.device}; only weights "
                "that are there as floating-point numbers can be loaded."
            )
    kind = dtype or reduce(torch.promote_types, (tensor.dtype for tensor in named.values()))
    state: dict[str, Tensor] = {}
    for row in rows:
        joined = row.change.join([named.pop(name).detach().to(kind) for name in row.theirs])
        state[row.ours] = joined.clone(memory_format=torch.contiguous_format)
    return state


# --- out -----------------------------------------------------------------------------------


def _choose_family(model: Transformer, family: str | None) -> tuple[str, dict[str, Any]]:
    if family is not None:
        return family, config_for(family, model.recipe)
    first = [model.origin.family] if model.origin is not None else []
    candidates: list[tuple[int, str, str]] = []
    for kind in dict.fromkeys([*first, *CHECKPOINTS.names()]):
        try:
            config, reasons = compare_config(kind, model.recipe)
        except RecipeError:  # its configuration would be of a model that cannot be built
            continue
        if not reasons:
            return kind, config
        candidates.append((len(reasons), kind, reasons[0]))
    _, nearest, reason = min(candidates)
    raise RecipeError(
        f"No family of Hugging Face checkpoints can be this model; {nearest} comes nearest, but "
        f"{reason}. Write Leadline's own format with save()."
    )


def _check_free(folder: Path, kind: str, recipe: Recipe) -> None:
    """Refuse a folder that holds another model; it may hold this model, or other files."""
    consequence = "which would be lost; choose another folder, or remove it first"
    if folder.exists() and not folder.is_dir():
        raise RecipeError(f"{folder} is a file; give a folder to write into.")
    if (folder / RECIPE_FILE).exists():
        raise RecipeError(f"{folder} holds a model in Leadline's own format, {consequence}.")
    if not (folder / CONFIG).exists():
        if (folder / WEIGHTS).exists():
            raise RecipeError(f"{folder} holds weights without a configuration, {consequence}.")
        return
    config = read_json(folder / CONFIG)
    try:
        is_same = config.get("model_type") == kind and meaning(
            CHECKPOINTS.get(kind)().recipe(config)
        ) == meaning(recipe)
    except RecipeError:
        is_same = False
    if not is_same or (folder / INDEX).exists():
        what = "a model in several parts" if is_same else "another model"
        raise RecipeError(f"{folder} holds {what}, {consequence}.")
