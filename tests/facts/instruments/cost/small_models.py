"""Two models of a few layers: ours, which declares its anatomy, and one that has to be discovered."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from leadline import Recipe, Transformer


def small_transformer() -> Transformer:
    """Two layers of ours."""
    return Transformer(Recipe(depth=2, width=32, heads=2, vocabulary=50), seed=0)


def small_gpt2() -> Any:
    """Two layers of GPT-2."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=50, n_positions=32)
    return transformers.GPT2LMHeadModel(config).eval()
