"""GPT-J: attention and MLP read the same normed stream; rotary positions pair neighbours.

The first `rotary_dim` features of a head are turned. Attention has no biases, the MLP and the
head have.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from leadline.parts.checkpoints._family import CHECKPOINTS, Family, meaning
from leadline.parts.checkpoints._fields import Fields, said
from leadline.parts.checkpoints._table import Row, Stacked, linear_rows, norm_rows
from leadline.parts.checkpoints.gpt2 import ACTIVATIONS, ALIASES, WRITTEN
from leadline.parts.recipe import Recipe


@CHECKPOINTS.register("gptj")
class GPTJ(Family):
    """GPT-J with a language head of its own, or without a head."""

    prefix = "transformer."
    whole = "GPTJForCausalLM"
    bare = "GPTJModel"
    left_out = (r"\.attn\.(masked_)?bias$", r"\.embed_positions$")

    def recipe(self, config: Mapping[str, Any]) -> Recipe:
        f = Fields(config, "gptj", ALIASES)
        head = f.head({self.whole: "linear", self.bare: "none"})
        if head == "linear":
            f.must(tie_word_embeddings=False)
        width, heads = f.whole("n_embd", 4096), f.whole("n_head", 16)
        inner = f.whole("n_inner", None) if f.get("n_inner", None) is not None else 4 * width
        turned = share_of(f.whole("rotary_dim", 64), max(1, width // heads))
        mlp = f.one_of("activation_function", ACTIVATIONS, "gelu_new")
        return Recipe(
            depth=f.whole("n_layer", 28),
            width=width,
            heads=heads,
            vocabulary=f.whole("vocab_size", 50400),
            context=f.whole("n_positions", 2048),
            attention=said("attention", "multihead", bias=False),
            positions=said("positions", "rotary", share=turned, pairs="neighbours"),
            mlp=said("mlp", mlp, hidden=None if inner == 4 * width else inner),
            norm=said("norm", "layernorm", eps=f.number("layer_norm_epsilon", 1e-5)),
            placement="parallel",
            head=said("head", head, bias=True) if head == "linear" else head,
        )

    def config(self, recipe: Recipe) -> dict[str, Any]:
        assert recipe.heads is not None
        m = meaning(recipe)
        hidden = m["mlp"].get("hidden")
        size = recipe.width // recipe.heads
        return {
            "n_layer": recipe.depth,
            "n_embd": recipe.width,
            "n_head": recipe.heads,
            "n_inner": None if hidden == 4 * recipe.width else hidden,
            "rotary_dim": max(1, int(size * m["positions"].get("share", 1.0))),
            "vocab_size": recipe.vocabulary,
            "n_positions": recipe.context,
            "activation_function": WRITTEN.get(m["mlp"]["name"], "gelu_new"),
            "layer_norm_epsilon": m["norm"].get("eps", 1e-5),
            "tie_word_embeddings": False,
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
        }

    def rows(self, recipe: Recipe) -> Iterator[Row]:
        yield Row("embedding.tokens.weight", ("transformer.wte.weight",))
        for i in range(recipe.depth):
            ours, theirs = f"blocks.{i}.joined", f"transformer.h.{i}"
            yield from norm_rows(f"{ours}.enter", f"{theirs}.ln_1", bias=True)
            yield from linear_rows(
                f"{ours}.branch.attention.qkv",
                [f"{theirs}.attn.{name}_proj" for name in "qkv"],
                bias=False,
                change=Stacked((recipe.width,) * 3),
            )
            attention, mlp = f"{ours}.branch.attention", f"{ours}.branch.mlp"
            yield from linear_rows(f"{attention}.output", f"{theirs}.attn.out_proj", bias=False)
            yield from linear_rows(f"{mlp}.up", f"{theirs}.mlp.fc_in", bias=True)
            yield from linear_rows(f"{mlp}.down", f"{theirs}.mlp.fc_out", bias=True)
        yield from norm_rows("norm", "transformer.ln_f", bias=True)
        if recipe.choice("head").name == "linear":
            yield from linear_rows("head.projection", "lm_head", bias=True)


def share_of(turned: int, size: int) -> float:
    """The share of a head that makes exactly `turned` features of `size`, rounded down."""
    share = turned / size
    return share if int(size * share) == turned else math.nextafter(share, math.inf)
