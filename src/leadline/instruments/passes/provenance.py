"""Facts of the provenance: the model, the loss, and the versions of the programs."""

from __future__ import annotations

import importlib.metadata
import platform
from typing import Any

import torch
from torch import nn

from leadline.anatomy import configured_model, is_compiled, wrapper_names
from leadline.models.inputs import Loss
from leadline.numerics.half_precision import half_route

__all__ = ["loss_facts", "model_facts", "versions"]


def model_facts(model: nn.Module, name: str | None, source: str) -> dict[str, Any]:
    """The facts of a model and of the wrappers around it."""
    module = configured_model(model)
    config = getattr(module, "config", None)
    known_name = (
        name or getattr(config, "name_or_path", None) or getattr(config, "model_type", None)
    )
    first = next(model.parameters(), None)
    wrappers = wrapper_names(model)
    return {
        "name": known_name or _own_label(module) or type(module).__name__,
        "class": type(module).__name__,
        **({"wrappers": wrappers} if wrappers else {}),
        "parameters": sum(p.numel() for p in model.parameters()),
        "dtype": "none" if first is None else str(first.dtype).removeprefix("torch."),
        "device": "none" if first is None else str(first.device),
        **({} if (route := half_route(module)) is None else {"half_precision": route}),
        "source": source,
        "mode": "eval, uncompiled" if is_compiled(model) else "eval",
        **_own_recipe(module),
    }


def _own_label(module: nn.Module) -> str | None:
    """What a model calls itself: ours say what is special about their recipe."""
    label = getattr(module, "label", None)
    return label if isinstance(label, str) else None


def _own_recipe(module: nn.Module) -> dict[str, Any]:
    """The recipe and the seed of a model that has them."""
    recipe = getattr(module, "recipe", None)
    if not hasattr(recipe, "to_json"):
        return {}
    return {"recipe": recipe.to_json(), "seed": getattr(module, "seed", None)}  # type: ignore[union-attr]


def loss_facts(loss: Loss, value: float) -> dict[str, Any]:
    """The facts of a loss and its value."""
    return {"kind": loss.kind, "reason": loss.reason, "value": value, "seed": loss.seed}


def versions() -> dict[str, str]:
    """The versions of Python, torch, leadline and transformers."""
    numbers = {"python": platform.python_version(), "torch": torch.__version__}
    for package in ("leadline", "transformers"):
        try:
            numbers[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return numbers
