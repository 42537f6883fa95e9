"""Models by name, as an experiment takes them: `random:TYPE`, `recipe:NAME`, or what can be loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from leadline.errors import LoadingError
from leadline.models.loading import LoadedModel, load_model

__all__ = ["SHAPES", "loaders"]

SHAPES = {"gpt2-large": ("gpt2", {"n_layer": 36, "n_embd": 1280, "n_head": 20})}
"""Sizes of models whose type alone does not tell them (Radford et al. 2019, table 2)."""
PREFIXES = ("random", "recipe")


def loaders(
    names: Iterable[str], *, dtype: str | None, device: str, seed: int, hint: str = ""
) -> dict[str, Callable[[], LoadedModel]]:
    """Return for each model what the table calls it, and the function that loads it.

    `hint` is added where a model without a prefix cannot be loaded.
    """
    return {
        _title(name): partial(_load, name, dtype=dtype, device=device, seed=seed, hint=hint)
        for name in names
    }


def _title(name: str) -> str:
    """What a model is called in the table: the last part of a path, or its type."""
    kind, rest = _split(name)
    if kind:
        return f"{rest} ({kind})"
    path = Path(name)
    if not path.exists():
        return name
    return path.parent.name if path.name == "model" else path.stem


def _load(name: str, *, dtype: str | None, device: str, seed: int, hint: str) -> LoadedModel:
    kind, rest = _split(name)
    source, overrides = SHAPES.get(rest, (rest, {})) if kind == "random" else (rest, {})
    try:
        return load_model(
            source,
            random_init=kind == "random",
            recipe=kind == "recipe",
            overrides=overrides,
            dtype=dtype,
            device=device,
            seed=seed,
        )
    except LoadingError as error:
        if hint and not kind:
            raise LoadingError(f"{error} {hint}") from error
        raise


def _split(name: str) -> tuple[str, str]:
    """The prefix of a name, empty where it has none, and the rest."""
    kind, colon, rest = name.partition(":")
    return (kind, rest) if colon and kind in PREFIXES else ("", name)
