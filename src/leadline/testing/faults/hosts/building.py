"""Builds hosts: of Hugging Face, of this project's parts, and two written plainly, as tutorials do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from leadline.errors import require
from leadline.testing.faults.hosts.families import FAMILIES, VOCABULARY

if TYPE_CHECKING:
    from torch import nn

__all__ = ["build_hf", "build_nano", "build_recipe"]


def build_hf(family: str, seed: int, **settings: Any) -> nn.Module:
    """A host of Hugging Face as its own class initialises it; `settings` change its configuration."""
    import torch

    transformers = require("transformers", extra="hf")
    model_type, class_name, sizes, *_ = FAMILIES[family]
    config = transformers.CONFIG_MAPPING[model_type](**{**sizes, **settings})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return getattr(transformers, class_name)(config).eval()


def build_recipe(fields: Mapping[str, Any], seed: int) -> nn.Module:
    """A Transformer of parts: width 64, 4 heads, 6 layers unless the fields say otherwise."""
    from leadline.parts import Transformer

    sizes = {"depth": 6, "width": 64, "heads": 4, "vocabulary": VOCABULARY, "context": 160}
    return Transformer(seed=seed, **{**sizes, **fields}).eval()


def build_nano(name: str, seed: int) -> nn.Module:
    """A model written plainly, in the manner of nanoGPT or of Llama."""
    import torch

    from leadline.testing.faults.hosts import plain

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if name == "nano-gpt":
            return plain.NanoGpt(plain.NanoGptConfig()).eval()
        return plain.NanoLlama(plain.NanoLlamaConfig()).eval()
