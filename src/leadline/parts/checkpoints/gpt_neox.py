"""GPT-NeoX and Pythia: attention and MLP side by side, each with its own norm, or one by one.

`use_parallel_residual=False` is plain pre-norm. Query, key and value of a head stand together in
one matrix. A quarter of each head is turned by rotary positions by default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from leadline.parts.checkpoints._family import CHECKPOINTS, Family, meaning
from leadline.parts.checkpoints._fields import Fields, part_choice
from leadline.parts.checkpoints._table import HeadMajor, WeightRow, linear_rows, norm_rows
from leadline.parts.checkpoints.gpt2 import ACTIVATIONS, THEIR_ACTIVATIONS
from leadline.parts.checkpoints.llama import language_head, sizes
from leadline.parts.recipe import Recipe

QUARTER = 0.25
"""The share of a head that is turned by default."""
OLD, NEW = "embed_out.", "lm_head."
"""What the head is called in files, and in a model of transformers 5."""


@CHECKPOINTS.register("gpt_neox")
class GPTNeoX(Family):
    """GPT-NeoX with a language head, tied or not, or without a head."""

    prefix = "gpt_neox."
    head_names = (OLD, NEW)
    class_with_head = "GPTNeoXForCausalLM"
    class_without_head = "GPTNeoXModel"
    left_out = (r"\.attention\.(masked_)?bias$", r"\.rotary_emb\.inv_freq$")

    def recipe(self, config: Mapping[str, Any]) -> Recipe:
        f = Fields(config, "gpt_neox")
        width = f.count("hidden_size", 6144)
        inner = f.count("intermediate_size", 24576)
        mlp = f.one_of("hidden_act", ACTIVATIONS, "gelu")
        rotary = f.rotary(share=QUARTER, base_name="rotary_emb_base", share_name="rotary_pct")
        parallel = f.flag("use_parallel_residual", True)
        return Recipe(
            **sizes(f, depth=44, vocabulary=50432, context=2048),
            width=width,
            heads=f.count("num_attention_heads", 64),
            attention=part_choice("attention", "multihead", bias=f.flag("attention_bias", True)),
            positions=part_choice("positions", "rotary", **rotary),
            mlp=part_choice("mlp", mlp, hidden=None if inner == 4 * width else inner),
            norm=part_choice("norm", "layernorm", eps=f.number("layer_norm_eps", 1e-5)),
            placement=part_choice("placement", "parallel", norms=2) if parallel else "pre",
            head=language_head(f, self, tied=False),
        )

    def config(self, recipe: Recipe) -> dict[str, Any]:
        m = meaning(recipe)
        return {
            "num_hidden_layers": recipe.depth,
            "hidden_size": recipe.width,
            "num_attention_heads": recipe.heads,
            "intermediate_size": m["mlp"].get("hidden", 4 * recipe.width),
            "vocab_size": recipe.vocabulary,
            "max_position_embeddings": recipe.context,
            "hidden_act": THEIR_ACTIVATIONS.get(m["mlp"]["name"], "gelu"),
            "layer_norm_eps": m["norm"].get("eps", 1e-5),
            "attention_bias": m["attention"].get("bias", True),
            "use_parallel_residual": m["placement"]["name"] != "pre",
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": m["positions"].get("base", 10000.0),
                "partial_rotary_factor": m["positions"].get("share", QUARTER),
            },
            "tie_word_embeddings": m["head"]["name"] == "tied",
            "hidden_dropout": 0.0,
            "attention_dropout": 0.0,
        }

    def rows(self, recipe: Recipe) -> Iterator[WeightRow]:
        assert recipe.heads is not None
        m = meaning(recipe)
        bias = m["attention"]["bias"]
        parallel = m["placement"]["name"] == "parallel"
        yield WeightRow("embedding.tokens.weight", ("gpt_neox.embed_in.weight",))
        for i in range(recipe.depth):
            ours, theirs = f"blocks.{i}", f"gpt_neox.layers.{i}"
            attention, mlp = f"{ours}.attention.branch", f"{ours}.mlp.branch"
            norms = (f"{ours}.attention.enter", f"{ours}.mlp.enter")
            if parallel:
                both = f"{ours}.joined.branch"
                attention, mlp = f"{both}.attention", f"{both}.mlp"
                norms = (f"{both}.attention_norm", f"{both}.mlp_norm")
            yield from norm_rows(norms[0], f"{theirs}.input_layernorm", bias=True)
            yield from norm_rows(norms[1], f"{theirs}.post_attention_layernorm", bias=True)
            yield from linear_rows(
                f"{attention}.qkv",
                f"{theirs}.attention.query_key_value",
                bias=bias,
                change=HeadMajor(recipe.heads),
            )
            yield from linear_rows(f"{attention}.output", f"{theirs}.attention.dense", bias=bias)
            yield from linear_rows(f"{mlp}.up", f"{theirs}.mlp.dense_h_to_4h", bias=True)
            yield from linear_rows(f"{mlp}.down", f"{theirs}.mlp.dense_4h_to_h", bias=True)
        yield from norm_rows("norm", "gpt_neox.final_layer_norm", bias=True)
        if recipe.choice("head").name == "linear":
            yield WeightRow("head.projection.weight", ("lm_head.weight",))

    def twins(self, recipe: Recipe) -> dict[str, str]:
        tied = recipe.choice("head").name == "tied"
        return {"lm_head.weight": "gpt_neox.embed_in.weight"} if tied else {}

    def full_name(self, name: str) -> str:
        name = super().full_name(name)
        return NEW + name.removeprefix(OLD) if name.startswith(OLD) else name

    def stored_name(self, name: str, head: str) -> str:
        name = super().stored_name(name, head)
        return OLD + name.removeprefix(NEW) if name.startswith(NEW) else name
