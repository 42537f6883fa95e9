"""Qwen3: Llama with a norm on each query and key, over its head. The head width is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from leadline.parts.checkpoints._family import CHECKPOINTS, meaning
from leadline.parts.checkpoints._fields import Fields, part_choice
from leadline.parts.checkpoints._table import WeightRow, norm_rows
from leadline.parts.checkpoints.llama import (
    Llama,
    gated_mlp,
    grouped_attention,
    language_head,
    shared_config,
    sizes,
)
from leadline.parts.checkpoints.qwen2 import refuse_windows
from leadline.parts.recipe import Recipe


@CHECKPOINTS.register("qwen3")
class Qwen3(Llama):
    """Qwen3 without a sliding window, with a language head or without a head."""

    class_with_head = "Qwen3ForCausalLM"
    class_without_head = "Qwen3Model"

    def recipe(self, config: Mapping[str, Any]) -> Recipe:
        f = Fields({"head_dim": 128, **config}, "qwen3")
        refuse_windows(f)
        width, heads = f.count("hidden_size", 4096), f.count("num_attention_heads", 32)
        bias = f.flag("attention_bias", False)
        return Recipe(
            **sizes(f, depth=32, vocabulary=151936, context=32768),
            width=width,
            heads=heads,
            attention=grouped_attention(f, width, heads, groups=32, bias=bias, qk_norm="head"),
            positions=part_choice("positions", "rotary", **f.rotary()),
            mlp=gated_mlp(f, 22016),
            norm=part_choice("norm", "rmsnorm", eps=f.number("rms_norm_eps", 1e-6)),
            head=language_head(f, self, tied=False),
        )

    def config(self, recipe: Recipe) -> dict[str, Any]:
        return {
            **shared_config(recipe),
            "attention_bias": meaning(recipe)["attention"].get("bias", False),
        }

    def rows(self, recipe: Recipe) -> Iterator[WeightRow]:
        yield from super().rows(recipe)
        for i in range(recipe.depth):
            ours, theirs = f"blocks.{i}.attention.branch", f"model.layers.{i}.self_attn"
            yield from norm_rows(f"{ours}.query_norm", f"{theirs}.q_norm", bias=False)
            yield from norm_rows(f"{ours}.key_norm", f"{theirs}.k_norm", bias=False)
