"""GPT-1: post-norm LayerNorm, learned positions, matrices stored as in GPT-2.

Its activation is called gelu and is the tanh form. The inner width is four times the width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from leadline.parts.checkpoints._family import CHECKPOINTS, Family, meaning
from leadline.parts.checkpoints._fields import Fields, part_choice
from leadline.parts.checkpoints._table import WeightRow, norm_rows
from leadline.parts.checkpoints.gpt2 import ALIASES, transposed_rows
from leadline.parts.recipe import Recipe

ACTIVATIONS = {"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}
THEIR_ACTIVATIONS = {"gelu_tanh": "gelu", "relu": "relu", "silu": "silu"}


@CHECKPOINTS.register("openai-gpt")
class OpenAIGPT(Family):
    """GPT-1 with a language head, tied or not, or without a head."""

    prefix = "transformer."
    class_with_head = "OpenAIGPTLMHeadModel"
    class_without_head = "OpenAIGPTModel"
    left_out = (r"\.attn\.bias$", r"\.position_ids$")

    def recipe(self, config: Mapping[str, Any]) -> Recipe:
        f = Fields(config, "openai-gpt", ALIASES)
        tied = "tied" if f.flag("tie_word_embeddings", True) else "linear"
        return Recipe(
            depth=f.count("n_layer", 12),
            width=f.count("n_embd", 768),
            heads=f.count("n_head", 12),
            vocabulary=f.count("vocab_size", 40478),
            context=f.count("n_positions", 512),
            mlp=f.one_of("afn", ACTIVATIONS, "gelu"),
            norm=part_choice("norm", "layernorm", eps=f.number("layer_norm_epsilon", 1e-5)),
            placement="post",
            head=f.head({self.class_with_head: tied, self.class_without_head: "none"}),
        )

    def config(self, recipe: Recipe) -> dict[str, Any]:
        m = meaning(recipe)
        return {
            "n_layer": recipe.depth,
            "n_embd": recipe.width,
            "n_head": recipe.heads,
            "vocab_size": recipe.vocabulary,
            "n_positions": recipe.context,
            "afn": THEIR_ACTIVATIONS.get(m["mlp"]["name"], "gelu"),
            "layer_norm_epsilon": m["norm"].get("eps", 1e-5),
            "tie_word_embeddings": m["head"]["name"] != "linear",
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
        }

    def rows(self, recipe: Recipe) -> Iterator[WeightRow]:
        yield WeightRow("embedding.tokens.weight", ("transformer.tokens_embed.weight",))
        yield WeightRow("embedding.positions.table.weight", ("transformer.positions_embed.weight",))
        for i in range(recipe.depth):
            ours, theirs = f"blocks.{i}", f"transformer.h.{i}"
            yield from norm_rows(f"{ours}.attention.settle", f"{theirs}.ln_1", bias=True)
            yield from norm_rows(f"{ours}.mlp.settle", f"{theirs}.ln_2", bias=True)
            yield from transposed_rows(ours, theirs)
        if recipe.choice("head").name == "linear":
            yield WeightRow("head.projection.weight", ("lm_head.weight",))

    def twins(self, recipe: Recipe) -> dict[str, str]:
        tied = recipe.choice("head").name == "tied"
        return {"lm_head.weight": "transformer.tokens_embed.weight"} if tied else {}
