"""Norms that are not called, not initialised or not converted as they should be."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leadline.testing.faults.wild.case import WildFault, wild_fault
from leadline.testing.faults.wild.modules import (
    DEPTH,
    VOCABULARY,
    PlainBlock,
    PlainEncoder,
    PlainTranslator,
    ReadingBlock,
    pair_ids,
)

__all__ = ["NORM_FAULTS"]

NORM_FAULTS: list[WildFault] = []


@wild_fault(
    NORM_FAULTS,
    "ml-explore/mlx#1636",
    "The decoder layer uses its first norm a second time after attention to the encoder; the second norm is never called.",
    ("parameters-unused", "modules-shared"),
    feed=pair_ids,
    repair_changes_output=False,
)
def first_norm_twice(repaired: bool) -> nn.Module:
    """At initialisation all gains are one, so only the parameters show it."""

    class TransformerDecoderLayer(ReadingBlock):
        def forward(self, x: Tensor, memory: Tensor) -> Tensor:
            x = self.norm1(x + self.attention(x))
            x = self.norm1(x + self.cross(x, memory))
            return self.norm3(x + self.mlp(x))

    block = ReadingBlock if repaired else TransformerDecoderLayer
    return PlainTranslator(block() for _ in range(DEPTH))


@wild_fault(
    NORM_FAULTS,
    "agentdr1/LA_MIL#3",
    "The layer declares its LayerNorm and never calls it.",
    ("parameters-unused", "norm-missing"),
)
def norms_never_called(repaired: bool) -> nn.Module:
    """A bidirectional encoder over the instances of a bag, without any norm in effect."""

    class TransformerLayer(PlainBlock):
        def forward(self, x: Tensor) -> Tensor:
            x = x + self.attention(x)
            return x + self.mlp(x)

    block = PlainBlock if repaired else TransformerLayer
    return PlainEncoder(block(causal=False) for _ in range(DEPTH))


@wild_fault(
    NORM_FAULTS,
    "huggingface/transformers#143",
    "Gains and biases of all LayerNorms are drawn from N(0, 0.02) like matrices instead of one and zero.",
    ("norm-gain-small",),
)
def gains_drawn_like_matrices(repaired: bool) -> nn.Module:
    """BERT, initialised a second time by a function that treats norms like matrices."""
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(
        BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=48,
            num_hidden_layers=DEPTH,
            num_attention_heads=4,
            intermediate_size=96,
            max_position_embeddings=64,
        )
    )
    if not repaired:
        for module in model.modules():
            if isinstance(module, nn.LayerNorm):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.normal_(module.bias, std=0.02)
    return model


@wild_fault(
    NORM_FAULTS,
    "Blaizzy/mlx-vlm#2114",
    "The conversion had added one to gains that the model's norm adds one to again.",
    ("norm-gain-shifted",),
)
def gains_shifted_twice(repaired: bool) -> nn.Module:
    """Gemma 3 with gains centred at 0.22, as released ones are, and one added to all of them."""
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    model = Gemma3ForCausalLM(
        Gemma3TextConfig(
            vocab_size=VOCABULARY,
            hidden_size=48,
            num_hidden_layers=DEPTH,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=12,
            intermediate_size=96,
            max_position_embeddings=64,
            sliding_window=32,
        )
    )
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.normal_(0.22, 0.1).add_(0.0 if repaired else 1.0)
    return model


@wild_fault(
    NORM_FAULTS,
    "paiml/aprender#1606",
    "The norm's kernel keeps the epsilon of Llama, 1e-5, where the configuration says 1e-6, beside a mean square of 4e-4.",
    ("norm-eps-large", "parts-from-reference"),
    by_reference=True,
)
def epsilon_of_another_family(repaired: bool) -> nn.Module:
    """Qwen 2 with embeddings of standard deviation 0.02."""
    from transformers import Qwen2Config, Qwen2ForCausalLM
    from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm

    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=VOCABULARY,
            hidden_size=48,
            num_hidden_layers=DEPTH,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=96,
            max_position_embeddings=64,
            rms_norm_eps=1e-6,
        )
    )
    if not repaired:
        for module in model.modules():
            if isinstance(module, Qwen2RMSNorm):
                module.variance_epsilon = 1e-5
    return model
