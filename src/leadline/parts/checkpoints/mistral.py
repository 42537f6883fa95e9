"""Mistral: Llama with grouped queries. A sliding window (the first 7B had one) is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.parts.checkpoints._family import CHECKPOINTS
from leadline.parts.checkpoints._fields import Fields, said
from leadline.parts.checkpoints.llama import (
    Llama,
    gated,
    grouped,
    language_head,
    sizes,
    written,
)
from leadline.parts.recipe import Recipe

WINDOW = 4096
"""The window where a configuration does not speak of it."""


@CHECKPOINTS.register("mistral")
class Mistral(Llama):
    """Mistral without a sliding window, with a language head or without a head."""

    whole = "MistralForCausalLM"
    bare = "MistralModel"

    def recipe(self, config: Mapping[str, Any]) -> Recipe:
        f = Fields({"sliding_window": WINDOW, **config}, "mistral")
        f.must(sliding_window=None)
        if "sliding_attention" in (f.get("layer_types", None) or ()):
            f.refuse("layer_types", "attention here has no sliding window")
        width, heads = f.whole("hidden_size", 4096), f.whole("num_attention_heads", 32)
        return Recipe(
            **sizes(f, depth=32, vocabulary=32000, context=131072),
            width=width,
            heads=heads,
            attention=grouped(f, width, heads, groups=8, bias=False),
            positions=said("positions", "rotary", **f.rotary()),
            mlp=gated(f, 14336),
            norm=said("norm", "rmsnorm", eps=f.number("rms_norm_eps", 1e-6)),
            head=language_head(f, self, tied=False),
        )

    def config(self, recipe: Recipe) -> dict[str, Any]:
        return {**written(recipe), "sliding_window": None}
