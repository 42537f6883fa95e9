"""OLMo-2: RMSNorm on the output of each branch, and on queries and keys over all heads.

Otherwise as Llama. There is no norm before a branch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from leadline.parts.checkpoints._family import CHECKPOINTS, Family, meaning
from leadline.parts.checkpoints._fields import Fields, part_choice
from leadline.parts.checkpoints._table import WeightRow, norm_rows
from leadline.parts.checkpoints.llama import (
    gated_mlp,
    grouped_attention,
    language_head,
    layer_rows,
    outer_rows,
    shared_config,
    sizes,
)
from leadline.parts.recipe import Recipe


@CHECKPOINTS.register("olmo2")
class OLMo2(Family):
    """OLMo-2 with a language head, tied or not, or without a head."""

    prefix = "model."
    class_with_head = "Olmo2ForCausalLM"
    class_without_head = "Olmo2Model"
    left_out = (r"\.rotary_emb\.inv_freq$",)

    def recipe(self, config: Mapping[str, Any]) -> Recipe:
        f = Fields(config, "olmo2")
        width, heads = f.count("hidden_size", 4096), f.count("num_attention_heads", 32)
        return Recipe(
            **sizes(f, depth=32, vocabulary=50304, context=2048),
            width=width,
            heads=heads,
            attention=grouped_attention(
                f, width, heads, bias=f.flag("attention_bias", False), qk_norm="width"
            ),
            positions=part_choice("positions", "rotary", **f.rotary()),
            mlp=gated_mlp(f, 11008),
            norm=part_choice("norm", "rmsnorm", eps=f.number("rms_norm_eps", 1e-5)),
            placement="output",
            head=language_head(f, self, tied=False),
        )

    def config(self, recipe: Recipe) -> dict[str, Any]:
        return {
            **shared_config(recipe),
            "attention_bias": meaning(recipe)["attention"].get("bias", False),
        }

    def rows(self, recipe: Recipe) -> Iterator[WeightRow]:
        for i in range(recipe.depth):
            ours, theirs = f"blocks.{i}", f"model.layers.{i}"
            for mine, name in (
                ("attention.exit", "post_attention_layernorm"),
                ("mlp.exit", "post_feedforward_layernorm"),
                ("attention.branch.query_norm", "self_attn.q_norm"),
                ("attention.branch.key_norm", "self_attn.k_norm"),
            ):
                yield from norm_rows(f"{ours}.{mine}", f"{theirs}.{name}", bias=False)
            yield from layer_rows(recipe, ours, theirs)
        yield from outer_rows(recipe)

    def twins(self, recipe: Recipe) -> dict[str, str]:
        tied = recipe.choice("head").name == "tied"
        return {"lm_head.weight": "model.embed_tokens.weight"} if tied else {}
