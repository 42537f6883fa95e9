"""Gemma: as Llama, with the embedding times sqrt(width), GEGLU, and norms that store gain - 1.

The head width is given on its own. An old configuration says gelu and means the tanh form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.parts.checkpoints._family import CHECKPOINTS, meaning
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

TANH = "gelu_pytorch_tanh"


@CHECKPOINTS.register("gemma")
class Gemma(Llama):
    """Gemma with a language head, tied or not, or without a head."""

    class_with_head = "GemmaForCausalLM"
    class_without_head = "GemmaModel"

    def recipe(self, config: Mapping[str, Any]) -> Recipe:
        content = {"head_dim": 256, **config}
        # The first Gemma said gelu in hidden_act, and the truth in hidden_activation.
        if content.get("hidden_act", "gelu") == "gelu":
            content["hidden_act"] = content.get("hidden_activation") or TANH
        f = Fields(content, "gemma")
        if f.get("use_bidirectional_attention", None):
            f.refuse("use_bidirectional_attention", "Gemma is read as a causal model")
        width, heads = f.count("hidden_size", 3072), f.count("num_attention_heads", 16)
        return Recipe(
            **sizes(f, depth=28, vocabulary=256000, context=8192),
            width=width,
            heads=heads,
            attention=grouped_attention(
                f, width, heads, groups=16, bias=f.flag("attention_bias", False)
            ),
            positions=part_choice("positions", "rotary", **f.rotary()),
            mlp=gated_mlp(f, 24576),
            norm=part_choice("norm", "rmsnorm", eps=f.number("rms_norm_eps", 1e-6), offset=1.0),
            embedding=part_choice("embedding", "token", scale="sqrt_width"),
            head=language_head(f, self, tied=True),
        )

    def config(self, recipe: Recipe) -> dict[str, Any]:
        return {
            **shared_config(recipe),
            "attention_bias": meaning(recipe)["attention"].get("bias", False),
            "tie_word_embeddings": recipe.choice("head").name != "linear",
        }
