"""GPT-J: attention and MLP read the same normed stream; rotary positions pair neighbours.

The first `rotary_dim` features of a head are turned. Attention has no biases, the MLP and the
head have.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from leadline.parts.checkpoints._family import CHECKPOINTS, Family, meaning
from leadline.parts.checkpoints._fields import Fields, part_choice
from leadline.parts.checkpoints._table import StackedTensors, WeightRow, linear_rows, norm_rows
from leadline.parts.checkpoints.gpt2 import ACTIVATIONS, ALIASES, THEIR_ACTIVATIONS
from leadline.parts.recipe import Recipe


@CHECKPOINTS.register("gptj")
class GPTJ(Family):
    """GPT-J with a language head of its own, or without a head."""

    prefix = "transformer."
    class_with_head = "GPTJForCausalLM"
    class_without_head = "GPTJModel"
    left_out = (r"\.attn\.(masked_)?bias$", r"\.embed_positions$")

    def recipe(self, config: Mapping[str, Any]) -> Recipe:
        f = Fields(config, "gptj", ALIASES)
        head = f.head({self.class_with_head: "linear", self.class_without_head: "none"})
        if head == "linear":
            f.must(tie_word_embeddings=False)
        width, heads = f.count("n_embd", 4096), f.count("n_head", 16)
        inner = f.count("n_inner", None) if f.get("n_inner", None) is not None else 4 * width
        turned = share_of(f.count("rotary_dim", 64), max(1, width // heads))
        mlp = f.one_of("activation_function", ACTIVATIONS, "gelu_new")
        return Recipe(
            depth=f.count("n_layer", 28),
            width=width,
            heads=heads,
            vocabulary=f.count("vocab_size", 50400),
            context=f.count("n_positions", 2048),
            attention=part_choice("attention", "multihead", bias=False),
            positions=part_choice("positions", "rotary", share=turned, pairs="neighbours"),
            mlp=part_choice("mlp", mlp, hidden=None if inner == 4 * width else inner),
            norm=part_choice("norm", "layernorm", eps=f.number("layer_norm_epsilon", 1e-5)),
            placement="parallel",
            head=part_choice("head", head, bias=True) if head == "linear" else head,
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
            "activation_function": THEIR_ACTIVATIONS.get(m["mlp"]["name"], "gelu_new"),
            "layer_norm_epsilon": m["norm"].get("eps", 1e-5),
            "tie_word_embeddings": False,
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
        }

    def rows(self, recipe: Recipe) -> Iterator[WeightRow]:
        yield WeightRow("embedding.tokens.weight", ("transformer.wte.weight",))
        for i in range(recipe.depth):
            ours, theirs = f"blocks.{i}.joined", f"transformer.h.{i}"
            yield from norm_rows(f"{ours}.enter", f"{theirs}.ln_1", bias=True)
            yield from linear_rows(
                f"{ours}.branch.attention.qkv",
                [f"{theirs}.attn.{name}_proj" for name in "qkv"],
                bias=False,
                change=StackedTensors((recipe.width,) * 3),
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
