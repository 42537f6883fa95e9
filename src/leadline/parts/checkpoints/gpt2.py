"""GPT-2: pre-norm LayerNorm, learned positions, one matrix for query, key and value, transposed.

Sizes of the released models stand in `leadline.parts.recipes`. The weights on the hub have no
prefix and hold the causal mask as a tensor, which is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from leadline.parts.checkpoints._family import CHECKPOINTS, Family, meaning
from leadline.parts.checkpoints._fields import Fields, part_choice
from leadline.parts.checkpoints._table import TRANSPOSED, WeightRow, linear_rows, norm_rows
from leadline.parts.recipe import Recipe

ALIASES = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
"""Names that transformers accepts as well."""

ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
"""Their activations of a plain MLP, and ours."""
THEIR_ACTIVATIONS = {"gelu_tanh": "gelu_new", "gelu": "gelu", "relu": "relu", "silu": "silu"}
"""Our activations, and the name of each that is written."""


@CHECKPOINTS.register("gpt2")
class GPT2(Family):
    """GPT-2 with a language head, tied or not, or without a head."""

    prefix = "transformer."
    class_with_head = "GPT2LMHeadModel"
    class_without_head = "GPT2Model"
    left_out = (r"\.attn\.(masked_)?bias$",)

    def recipe(self, config: Mapping[str, Any]) -> Recipe:
        f = Fields(config, "gpt2", ALIASES)
        f.must(
            scale_attn_weights=True,
            scale_attn_by_inverse_layer_idx=False,
            add_cross_attention=False,
        )
        width = f.count("n_embd", 768)
        tied = "tied" if f.flag("tie_word_embeddings", True) else "linear"
        inner = f.count("n_inner", None) if f.get("n_inner", None) is not None else 4 * width
        mlp = f.one_of("activation_function", ACTIVATIONS, "gelu_new")
        return Recipe(
            depth=f.count("n_layer", 12),
            width=width,
            heads=f.count("n_head", 12),
            vocabulary=f.count("vocab_size", 50257),
            context=f.count("n_positions", 1024),
            mlp=part_choice("mlp", mlp, hidden=None if inner == 4 * width else inner),
            norm=part_choice("norm", "layernorm", eps=f.number("layer_norm_epsilon", 1e-5)),
            head=f.head({self.class_with_head: tied, self.class_without_head: "none"}),
        )

    def config(self, recipe: Recipe) -> dict[str, Any]:
        m = meaning(recipe)
        hidden = m["mlp"].get("hidden")
        return {
            "n_layer": recipe.depth,
            "n_embd": recipe.width,
            "n_head": recipe.heads,
            "n_inner": None if hidden == 4 * recipe.width else hidden,
            "vocab_size": recipe.vocabulary,
            "n_positions": recipe.context,
            "activation_function": THEIR_ACTIVATIONS.get(m["mlp"]["name"], "gelu_new"),
            "layer_norm_epsilon": m["norm"].get("eps", 1e-5),
            "tie_word_embeddings": m["head"]["name"] != "linear",
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
        }

    def rows(self, recipe: Recipe) -> Iterator[WeightRow]:
        yield WeightRow("embedding.tokens.weight", ("transformer.wte.weight",))
        yield WeightRow("embedding.positions.table.weight", ("transformer.wpe.weight",))
        for i in range(recipe.depth):
            ours, theirs = f"blocks.{i}", f"transformer.h.{i}"
            yield from norm_rows(f"{ours}.attention.enter", f"{theirs}.ln_1", bias=True)
            yield from norm_rows(f"{ours}.mlp.enter", f"{theirs}.ln_2", bias=True)
            yield from transposed_rows(ours, theirs)
        yield from norm_rows("norm", "transformer.ln_f", bias=True)
        if recipe.choice("head").name == "linear":
            yield WeightRow("head.projection.weight", ("lm_head.weight",))

    def twins(self, recipe: Recipe) -> dict[str, str]:
        tied = recipe.choice("head").name == "tied"
        return {"lm_head.weight": "transformer.wte.weight"} if tied else {}


def transposed_rows(ours: str, theirs: str) -> Iterator[WeightRow]:
    """The four matrices of a layer, transposed, with their biases."""
    for mine, name in (
        ("attention.branch.qkv", "attn.c_attn"),
        ("attention.branch.output", "attn.c_proj"),
        ("mlp.branch.up", "mlp.c_fc"),
        ("mlp.branch.down", "mlp.c_proj"),
    ):
        yield from linear_rows(f"{ours}.{mine}", f"{theirs}.{name}", bias=True, change=TRANSPOSED)
