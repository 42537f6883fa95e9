"""Qwen2: Llama with biases on query, key and value, and none on the output."""

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


@CHECKPOINTS.register("qwen2")
class Qwen2(Llama):
    """Qwen2 without a sliding window, with a language head or without a head."""

    class_with_head = "Qwen2ForCausalLM"
    class_without_head = "Qwen2Model"

    def recipe(self, config: Mapping[str, Any]) -> Recipe:
        f = Fields(config, "qwen2")
        refuse_windows(f)
        width, heads = f.count("hidden_size", 4096), f.count("num_attention_heads", 32)
        return Recipe(
            **sizes(f, depth=32, vocabulary=151936, context=32768),
            width=width,
            heads=heads,
            attention=grouped_attention(f, width, heads, groups=32, bias=True, output_bias=False),
            positions=part_choice("positions", "rotary", **f.rotary()),
            mlp=gated_mlp(f, 22016),
            norm=part_choice("norm", "rmsnorm", eps=f.number("rms_norm_eps", 1e-6)),
            head=language_head(f, self, tied=False),
        )

    def config(self, recipe: Recipe) -> dict[str, Any]:
        return shared_config(recipe)


def refuse_windows(f: Fields) -> None:
    """Refuse a sliding window in any layer."""
    f.must(use_sliding_window=False)
    if "sliding_attention" in (f.get("layer_types", None) or ()):
        f.refuse("layer_types", "attention here has no sliding window")
