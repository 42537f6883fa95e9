"""The twin of a model: the same configuration with random weights, drawn as its class draws them."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from leadline.anatomy import configured_model
from leadline.instruments.visit.draws import DrawsThatCount
from leadline.models.streaming.decision import copy_refusal
from leadline.parts import Transformer

__all__ = ["NoTwin", "build_twin", "twin_from"]

MOST_PARAMETERS = 2_000_000_000
"""A larger twin is not built: its weights alone would take longer than the visit."""


class NoTwin(Exception):
    """Why a model has no twin."""


def build_twin(model: nn.Module, seed: int = 0) -> nn.Module:
    """A model of the same class and configuration with fresh weights; raise `NoTwin` with why not."""
    inner: Any = configured_model(model)
    if sum(parameter.numel() for parameter in inner.parameters()) > MOST_PARAMETERS:
        raise NoTwin("the model is too large for a twin of random weights")
    if (reason := copy_refusal(inner)) is not None:
        raise NoTwin(f"the model is streamed, and {reason}")
    device = next((p.device for p in inner.parameters()), torch.device("cpu"))
    dtype = next((p.dtype for p in inner.parameters() if p.is_floating_point()), torch.float32)
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        try:
            twin = _built(inner, seed)
        except NoTwin:
            raise
        except Exception as error:
            raise NoTwin(
                f"{type(inner).__name__} cannot be built again from its configuration "
                f"({type(error).__name__}: {error})"
            ) from error
    if _layout(twin) != _layout(inner):
        raise NoTwin(
            f"what {type(inner).__name__} builds from its configuration has other parameters "
            "than this model"
        )
    return twin.to(device=device, dtype=dtype).eval()


def twin_from(build: Callable[[], Any], model: nn.Module) -> nn.Module:
    """The twin that a function of the user builds; raise `NoTwin` where it cannot stand for one."""
    with torch.random.fork_rng(devices=[]):
        try:
            twin = build()
        except Exception as error:
            raise NoTwin(
                f"the function given as twin failed ({type(error).__name__}: {error})"
            ) from error
    if not isinstance(twin, nn.Module):
        raise NoTwin(
            f"the function given as twin returned {type(twin).__name__}; let it return a module"
        )
    if _layout(twin) not in (_layout(model), _layout(configured_model(model))):
        raise NoTwin(
            "what the function given as twin builds has other parameters than this model; "
            "let it build the same class with the same sizes"
        )
    return twin.eval()


def _built(inner: Any, seed: int) -> nn.Module:
    if isinstance(inner, Transformer):
        return Transformer(inner.recipe, seed=seed)
    config = getattr(inner, "config", None)
    if config is None:
        raise NoTwin(
            f"{type(inner).__name__} has no configuration to build it from; "
            "give twin=a function that builds it"
        )
    with DrawsThatCount():
        return type(inner)(copy.deepcopy(config))


def _layout(model: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(p.shape) for name, p in model.named_parameters(remove_duplicate=False)}
