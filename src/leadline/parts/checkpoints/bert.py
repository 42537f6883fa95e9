"""BERT: post-norm LayerNorm, bidirectional, learned positions and two types, a norm on their sum.

The pooler and the head for next sentences are left out: a model of ours ends at the stream or at
the logits of masked words. Written back without a head, transformers draws a new pooler. Old
checkpoints call gain and shift of a norm gamma and beta.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from leadline.parts.checkpoints._family import CHECKPOINTS, Family, meaning
from leadline.parts.checkpoints._fields import Fields, part_choice
from leadline.parts.checkpoints._table import StackedTensors, WeightRow, linear_rows, norm_rows
from leadline.parts.checkpoints.gpt2 import ACTIVATIONS, THEIR_ACTIVATIONS
from leadline.parts.recipe import Recipe

OLD_NAMES = {".gamma": ".weight", ".beta": ".bias"}


@CHECKPOINTS.register("bert")
class BERT(Family):
    """BERT with its head for masked words, or without a head."""

    prefix = "bert."
    head_names = ("cls.",)
    class_with_head = "BertForMaskedLM"
    class_without_head = "BertModel"
    left_out = (
        r"^bert\.pooler\.",
        r"^cls\.seq_relationship\.",
        r"^bert\.embeddings\.(position_ids|token_type_ids)$",
    )

    def recipe(self, config: Mapping[str, Any]) -> Recipe:
        f = Fields(config, "bert")
        f.must(
            is_decoder=False,
            add_cross_attention=False,
            position_embedding_type="absolute",
        )
        width = f.count("hidden_size", 768)
        inner = f.count("intermediate_size", 3072)
        mlp = f.one_of("hidden_act", ACTIVATIONS, "gelu")
        head = f.head(
            {
                self.class_with_head: "masked",
                "BertForPreTraining": "masked",
                self.class_without_head: "none",
            }
        )
        if head == "masked":
            f.must(tie_word_embeddings=True)
            if mlp != "gelu":
                f.refuse("hidden_act", "the head for masked words here has the exact gelu")
        return Recipe(
            depth=f.count("num_hidden_layers", 12),
            width=width,
            heads=f.count("num_attention_heads", 12),
            vocabulary=f.count("vocab_size", 30522),
            context=f.count("max_position_embeddings", 512),
            attention=part_choice("attention", "multihead", causal=False),
            mlp=part_choice("mlp", mlp, hidden=None if inner == 4 * width else inner),
            norm=part_choice("norm", "layernorm", eps=f.number("layer_norm_eps", 1e-12)),
            placement="post",
            embedding=part_choice(
                "embedding", "token", types=f.count("type_vocab_size", 2), normed=True
            ),
            head=head,
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
            "type_vocab_size": max(1, m["embedding"].get("types", 1)),
            "hidden_act": THEIR_ACTIVATIONS.get(m["mlp"]["name"], "gelu"),
            "layer_norm_eps": m["norm"].get("eps", 1e-12),
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        }

    def rows(self, recipe: Recipe) -> Iterator[WeightRow]:
        tables = {
            "tokens": "word_embeddings",
            "positions.table": "position_embeddings",
            "types": "token_type_embeddings",
        }
        for ours, theirs in tables.items():
            yield WeightRow(f"embedding.{ours}.weight", (f"bert.embeddings.{theirs}.weight",))
        yield from norm_rows("embedding.norm", "bert.embeddings.LayerNorm", bias=True)
        for i in range(recipe.depth):
            ours, theirs = f"blocks.{i}", f"bert.encoder.layer.{i}"
            yield from linear_rows(
                f"{ours}.attention.branch.qkv",
                [f"{theirs}.attention.self.{name}" for name in ("query", "key", "value")],
                bias=True,
                change=StackedTensors((recipe.width,) * 3),
            )
            for mine, name in (
                ("attention.branch.output", "attention.output.dense"),
                ("attention.settle", "attention.output.LayerNorm"),
                ("mlp.branch.up", "intermediate.dense"),
                ("mlp.branch.down", "output.dense"),
                ("mlp.settle", "output.LayerNorm"),
            ):
                yield from linear_rows(f"{ours}.{mine}", f"{theirs}.{name}", bias=True)
        if recipe.choice("head").name == "masked":
            transform = "cls.predictions.transform"
            yield from linear_rows("head.transform", f"{transform}.dense", bias=True)
            yield from norm_rows("head.norm", f"{transform}.LayerNorm", bias=True)
            yield WeightRow("head.bias", ("cls.predictions.bias",))

    def twins(self, recipe: Recipe) -> dict[str, str]:
        if recipe.choice("head").name != "masked":
            return {}
        return {
            "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        }

    def full_name(self, name: str) -> str:
        name = super().full_name(name)
        for old, new in OLD_NAMES.items():
            if name.endswith(old):
                return name.removesuffix(old) + new
        return name
