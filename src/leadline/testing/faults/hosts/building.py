"""Builds hosts: of Hugging Face, of this project's parts, and two written plainly, as tutorials do."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from leadline.errors import RecipeError, require
from leadline.testing.faults.fresh.hosts.families import FRESH_FAMILIES
from leadline.testing.faults.hosts.families import FAMILIES, VOCABULARY

if TYPE_CHECKING:
    from torch import nn

__all__ = ["build_hf", "build_nano", "build_part", "build_plain", "build_recipe"]


def build_hf(family: str, seed: int, **settings: Any) -> nn.Module:
    """A host of Hugging Face as its own class initialises it; `settings` change its configuration."""
    import torch

    transformers = require("transformers", extra="hf")
    model_type, class_name, sizes, *_ = {**FAMILIES, **FRESH_FAMILIES}[family]
    config = transformers.CONFIG_MAPPING[model_type](**{**sizes, **settings})
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        # Some modelling files warn while they are imported: they still use torch.jit.script.
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        return getattr(transformers, class_name)(config).eval()


def build_recipe(fields: Mapping[str, Any], seed: int) -> nn.Module:
    """A Transformer of parts: width 64, 4 heads, 6 layers unless the fields say otherwise."""
    from leadline.parts import Transformer

    sizes = {"depth": 6, "width": 64, "heads": 4, "vocabulary": VOCABULARY, "context": 160}
    return Transformer(seed=seed, **{**sizes, **fields}).eval()


# The init or norm of a design goes with the rest of the design.
_DESIGNS: dict[tuple[str, str], dict[str, str]] = {
    ("init", "deepnorm"): {"connection": "deepnorm", "placement": "post"},
    ("init", "subln"): {"placement": "subln"},
    ("init", "mup"): {"connection": "depth_mup"},
}


def build_part(kind: str, choice: str, seed: int, **sizes: Any) -> nn.Module:
    """A Transformer with one part chosen; a connection gets the first placement that it allows."""
    fields = {kind: choice, **sizes, **_DESIGNS.get((kind, choice), {})}
    if kind != "connection":
        return build_recipe(fields, seed)
    for placement in ("pre", "post", "keel"):
        try:
            return build_recipe({**fields, "placement": placement}, seed)
        except RecipeError:
            continue
    raise RecipeError(f"The connection {choice!r} allows neither pre nor post nor keel placement.")


def build_nano(name: str, seed: int) -> nn.Module:
    """A model written plainly, in the manner of nanoGPT or of Llama."""
    import torch

    from leadline.testing.faults.hosts import plain

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if name == "nano-gpt":
            return plain.NanoGpt(plain.NanoGptConfig()).eval()
        return plain.NanoLlama(plain.NanoLlamaConfig()).eval()


def build_plain(name: str, seed: int, **sizes: Any) -> nn.Module:
    """A fresh plain model; `sizes` change its configuration."""
    import torch

    from leadline.testing.faults.fresh.hosts import plain

    model, config = plain.PLAIN[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return model(config(**sizes)).eval()
