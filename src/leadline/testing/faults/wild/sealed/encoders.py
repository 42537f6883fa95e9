"""Sealed wild faults in plain bidirectional encoders."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from leadline.testing.faults.wild.case import WildFault, wild_fault
from leadline.testing.faults.wild.modules import (
    DEPTH,
    PlainAttention,
    PlainBlock,
    PlainEncoder,
    SettledBlock,
    Sinusoids,
)

__all__ = ["ENCODER_FAULTS"]

ENCODER_FAULTS: list[WildFault] = []


def _encoder(attention: type[PlainAttention]) -> PlainEncoder:
    return PlainEncoder(SettledBlock(attention(causal=False)) for _ in range(DEPTH))


@wild_fault(
    ENCODER_FAULTS,
    "SHI-Labs/Compact-Transformers#25",
    "The skip around the MLP starts behind its norm, a line lost in a merge.",
    ("residual-from-wrong-point", "norm-misplaced"),
    sublayer="mlp",
    intended="pre-norm",
)
def mlp_skip_behind_its_norm(repaired: bool) -> nn.Module:
    """x = norm(x); x = x + mlp(x)."""

    class TransformerEncoderLayer(PlainBlock):
        def forward(self, x: Tensor) -> Tensor:
            x = x + self.attention(self.norm1(x))
            x = self.norm2(x)
            return x + self.mlp(x)

    block = PlainBlock if repaired else TransformerEncoderLayer
    return PlainEncoder(block(causal=False) for _ in range(DEPTH))


@wild_fault(
    ENCODER_FAULTS,
    "FrancescoSaverioZuppichini/ViT#2",
    "The scale multiplies the weights behind the softmax instead of the logits before it.",
    ("attention-scale-wrong",),
    sublayer="attention",
)
def scale_behind_the_softmax(repaired: bool) -> nn.Module:
    """Rows of the attention matrix sum to 1 / sqrt(head width)."""

    class ViTAttention(PlainAttention):
        def logits(self, query: Tensor, key: Tensor) -> Tensor:
            return query @ key.transpose(-2, -1)

        def weights(self, logits: Tensor) -> Tensor:
            narrow = self.query.out_features // self.heads
            return logits.softmax(dim=-1) / math.sqrt(narrow)

    return _encoder(PlainAttention if repaired else ViTAttention)


@wild_fault(
    ENCODER_FAULTS,
    "zju3dv/LoFTR#41",
    "The exponent of the position frequencies is divided by // where brackets are missing and becomes -1, so nearly all frequencies vanish.",
    ("positions-wrong", "buffer-wrong", "parts-from-reference"),
    parameter="positions.table",
    by_reference=True,
)
def frequencies_divided_down(repaired: bool) -> nn.Module:
    """Frequencies fall as exp(-2), exp(-4), exp(-6) from feature to feature."""

    class PositionEncodingSine(Sinusoids):
        def frequencies(self, width: int) -> Tensor:
            return torch.exp(torch.arange(0, width, 2).float() * (-math.log(10000.0) / width // 2))

    positions = Sinusoids() if repaired else PositionEncodingSine()
    return PlainEncoder((SettledBlock() for _ in range(DEPTH)), positions)


@wild_fault(
    ENCODER_FAULTS,
    "coleygroup/ms-pred#38",
    "The dropout of the attention kernel is passed without regard to the mode, so it stays on in evaluation.",
    ("random-in-evaluation",),
    sublayer="attention",
)
def kernel_dropout_in_evaluation(repaired: bool) -> nn.Module:
    """The function of torch has no training flag."""

    class KernelAttention(PlainAttention):
        dropout = 0.1

        def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
            heads = [self.split(part(x)) for part in (self.query, self.key, self.value)]
            rate = self.dropout if self.training or not repaired else 0.0
            mixed = F.scaled_dot_product_attention(*heads, dropout_p=rate)
            return self.out(self.merge(mixed))

    return _encoder(KernelAttention)


@wild_fault(
    ENCODER_FAULTS,
    "espnet/espnet#465",
    "Embedding and positions are computed without a graph, so nothing before the first layer is trained.",
    ("gradient-cut", "parameters-frozen"),
    parameter="embedding.weight",
    repair_changes_output=False,
)
def positions_without_a_graph(repaired: bool) -> nn.Module:
    """The positions were a constant at first, and the context that made them so remained."""

    class PositionalEncoding(Sinusoids):
        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                return super().forward(x)

    positions = Sinusoids() if repaired else PositionalEncoding()
    return PlainEncoder((SettledBlock() for _ in range(DEPTH)), positions)
