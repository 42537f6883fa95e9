"""Mistral: Llama with grouped queries. A sliding window (the first 7B had one) is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.parts.checkpoints._family import CHECKPOINTS
from leadline.parts.checkpoints._fields import Fields, part_choice
from leadline.parts.checkpoints.llama import (
    Llama,
    gated_mlp,
    grouped_attention,
    language_head,
    shared_config,
    sizes,
)
from leadline.parts.recipe import Recipe

WINDOW = 4096
"""The default of a configuration without this field."""


@CHECKPOINTS.register("mistral")
class Mistral(Llama):
    """Mistral without a sliding window, with a language head or without a head."""

    class_with_head = "MistralForCausalLM"
    class_without_head = "MistralModel"

    def recipe(self, config: Mapping[str, Any]) -> Recipe:
        f = Fields({"sliding_window": WINDOW, **config}, "mistral")
        f.must(sliding_window=None)
        if "sliding_attention" in (f.get("layer_types", None) or ()):
            f.refuse("layer_types", "attention here has no sliding window")
        width, heads = f.count("hidden_size", 4096), f.count("num_attention_heads", 32)
        return Recipe(
            **sizes(f, depth=32, vocabulary=32000, context=131072),
            width=width,
            heads=heads,
            attention=grouped_attention(f, width, heads, groups=8, bias=False),
            positions=part_choice("positions", "rotary", **f.rotary()),
            mlp=gated_mlp(f, 14336),
            norm=part_choice("norm", "rmsnorm", eps=f.number("rms_norm_eps", 1e-6)),
            head=language_head(f, self, tied=False),
        )

    def config(self, recipe: Recipe) -> dict[str, Any]:
        return {**shared_config(recipe), "sliding_window": None}
