"""Llama: pre-norm RMSNorm, rotary positions, grouped queries, a gated MLP; SmolLM2 is one too.

Theirs keeps query, key and value apart, and gate and up; ours stacks them. Rotary positions pair
the two halves of a head. Scaled rotary positions (Llama 3.1 and later) are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from leadline.parts.checkpoints._family import CHECKPOINTS, Family, meaning
from leadline.parts.checkpoints._fields import Fields, part_choice
from leadline.parts.checkpoints._table import StackedTensors, WeightRow, linear_rows, norm_rows
from leadline.parts.recipe import Recipe

GATES = {"silu": "swiglu", "swish": "swiglu", "gelu_pytorch_tanh": "geglu", "gelu_new": "geglu"}
"""Their activations of a gated MLP, and ours."""
THEIR_ACTIVATIONS = {"swiglu": "silu", "geglu": "gelu_pytorch_tanh"}
"""Our gated MLPs, and the activation of each that is written."""


@CHECKPOINTS.register("llama")
class Llama(Family):
    """Llama with a language head, tied or not, or without a head."""

    prefix = "model."
    class_with_head = "LlamaForCausalLM"
    class_without_head = "LlamaModel"
    left_out = (r"\.rotary_emb\.inv_freq$",)

    def recipe(self, config: Mapping[str, Any]) -> Recipe:
        f = Fields(config, "llama")
        width, heads = f.count("hidden_size", 4096), f.count("num_attention_heads", 32)
        return Recipe(
            **sizes(f, depth=32, vocabulary=32000, context=2048),
            width=width,
            heads=heads,
            attention=grouped_attention(f, width, heads, bias=f.flag("attention_bias", False)),
            positions=part_choice("positions", "rotary", **f.rotary()),
            mlp=gated_mlp(f, 11008, bias=f.flag("mlp_bias", False)),
            norm=part_choice("norm", "rmsnorm", eps=f.number("rms_norm_eps", 1e-6)),
            head=language_head(f, self, tied=False),
        )

    def config(self, recipe: Recipe) -> dict[str, Any]:
        m = meaning(recipe)
        return {
            **shared_config(recipe),
            "attention_bias": m["attention"].get("bias", False),
            "mlp_bias": m["mlp"].get("bias", False),
        }

    def rows(self, recipe: Recipe) -> Iterator[WeightRow]:
        for i in range(recipe.depth):
            ours, theirs = f"blocks.{i}", f"model.layers.{i}"
            yield from norm_rows(f"{ours}.attention.enter", f"{theirs}.input_layernorm", bias=False)
            yield from norm_rows(
                f"{ours}.mlp.enter", f"{theirs}.post_attention_layernorm", bias=False
            )
            yield from layer_rows(recipe, ours, theirs)
        yield from outer_rows(recipe)

    def twins(self, recipe: Recipe) -> dict[str, str]:
        tied = recipe.choice("head").name == "tied"
        return {"lm_head.weight": "model.embed_tokens.weight"} if tied else {}


def sizes(f: Fields, *, depth: int, vocabulary: int, context: int) -> dict[str, Any]:
    """The plain numbers of a recipe, each with its class's default."""
    return {
        "depth": f.count("num_hidden_layers", depth),
        "vocabulary": f.count("vocab_size", vocabulary),
        "context": f.count("max_position_embeddings", context),
    }


def grouped_attention(
    f: Fields, width: int, heads: int, *, groups: int | None = None, **options: Any
) -> Any:
    """Attention with `num_key_value_heads` groups and heads of `head_dim`."""
    is_plain = f.get("num_key_value_heads", groups) is None
    groups = None if is_plain else f.count("num_key_value_heads", groups)
    size = f.count("head_dim", None) if f.get("head_dim", None) is not None else width // heads
    return part_choice(
        "attention",
        "multihead",
        groups=None if groups == heads else groups,
        head_width=None if size * heads == width else size,
        **options,
    )


def gated_mlp(f: Fields, hidden: int, **options: Any) -> Any:
    """The gated MLP that `hidden_act` and `intermediate_size` name."""
    kind = f.one_of("hidden_act", GATES, "silu")
    return part_choice("mlp", kind, hidden=f.count("intermediate_size", hidden), **options)


def language_head(f: Fields, family: Family, *, tied: bool) -> str:
    """The head of the family's whole class, tied or not; none of its bare class."""
    head = "tied" if f.flag("tie_word_embeddings", tied) else "linear"
    return f.head({family.class_with_head: head, family.class_without_head: "none"})


def shared_config(recipe: Recipe) -> dict[str, Any]:
    """The fields that all relatives of Llama share."""
    m = meaning(recipe)
    return {
        "num_hidden_layers": recipe.depth,
        "hidden_size": recipe.width,
        "num_attention_heads": recipe.heads,
        "num_key_value_heads": m["attention"].get("groups", recipe.heads),
        "head_dim": m["attention"].get("head_width"),
        "intermediate_size": m["mlp"].get("hidden", 4 * recipe.width),
        "vocab_size": recipe.vocabulary,
        "max_position_embeddings": recipe.context,
        "hidden_act": THEIR_ACTIVATIONS.get(m["mlp"]["name"], "silu"),
        "rms_norm_eps": m["norm"].get("eps", 1e-6),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": m["positions"].get("base", 10000.0),
        },
        "tie_word_embeddings": m["head"]["name"] == "tied",
        "attention_dropout": 0.0,
    }


def layer_rows(recipe: Recipe, ours: str, theirs: str) -> Iterator[WeightRow]:
    """Attention and MLP of one layer, without its norms."""
    m = meaning(recipe)
    attention, mlp = m["attention"], m["mlp"]
    size, hidden = attention["head_width"], mlp["hidden"]
    groups = attention["groups"] * size
    yield from linear_rows(
        f"{ours}.attention.branch.qkv",
        [f"{theirs}.self_attn.{name}_proj" for name in "qkv"],
        bias=attention["bias"],
        change=StackedTensors((m["heads"] * size, groups, groups)),
    )
    yield from linear_rows(
        f"{ours}.attention.branch.output",
        f"{theirs}.self_attn.o_proj",
        bias=attention["output_bias"],
    )
    yield from linear_rows(
        f"{ours}.mlp.branch.gate_up",
        [f"{theirs}.mlp.gate_proj", f"{theirs}.mlp.up_proj"],
        bias=mlp["bias"],
        change=StackedTensors((hidden, hidden)),
    )
    yield from linear_rows(f"{ours}.mlp.branch.down", f"{theirs}.mlp.down_proj", bias=mlp["bias"])


def outer_rows(recipe: Recipe) -> Iterator[WeightRow]:
    """Embedding, closing norm and head."""
    yield WeightRow("embedding.tokens.weight", ("model.embed_tokens.weight",))
    yield from norm_rows("norm", "model.norm", bias=False)
    if recipe.choice("head").name == "linear":
        yield WeightRow("head.projection.weight", ("lm_head.weight",))
