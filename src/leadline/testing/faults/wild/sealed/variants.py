"""Sealed wild faults in decoders with a variation: grouped heads, odd norms, an encoder beside it."""

from __future__ import annotations

from torch import Tensor, nn

from leadline.testing.faults.wild.case import WildFault, wild_fault
from leadline.testing.faults.wild.modules import (
    DEPTH,
    HEADS,
    WIDTH,
    PlainAttention,
    PlainBlock,
    PlainDecoder,
    PlainTranslator,
    ReadingBlock,
    pair_ids,
)

__all__ = ["VARIANT_FAULTS"]

VARIANT_FAULTS: list[WildFault] = []


@wild_fault(
    VARIANT_FAULTS,
    "ekzhang/jax-js#180",
    "Heads of keys and values are tiled where each has to be repeated, so query heads meet the wrong ones.",
    ("weights-layout-wrong", "parts-from-reference"),
    sublayer="attention",
    by_reference=True,
)
def grouped_heads_tiled(repaired: bool) -> nn.Module:
    """Four heads of queries on two heads of keys: 0 1 0 1 instead of 0 0 1 1."""

    class GroupedAttention(PlainAttention):
        def __init__(self) -> None:
            super().__init__(causal=True, rotary=True)
            self.key = nn.Linear(WIDTH, WIDTH // 2)
            self.value = nn.Linear(WIDTH, WIDTH // 2)

        def split(self, x: Tensor) -> Tensor:
            narrow = x.unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)
            copies = HEADS // narrow.size(1)
            if repaired:
                return narrow.repeat_interleave(copies, dim=1)
            return narrow.repeat(1, copies, 1, 1)

    blocks = (PlainBlock(GroupedAttention()) for _ in range(DEPTH))
    return PlainDecoder(blocks, learned_positions=False)


@wild_fault(
    VARIANT_FAULTS,
    "BobMcDear/attorch#14",
    "The offset of a head is rounded down to zero, so every head reads the rows of the first one.",
    ("heads-equal", "heads-split-wrong", "parameters-unused"),
    sublayer="attention",
)
def every_head_is_the_first(repaired: bool) -> nn.Module:
    """Queries, keys and values of the other heads are computed and never read."""

    class KernelAttention(PlainAttention):
        def split(self, x: Tensor) -> Tensor:
            heads = super().split(x)
            return heads[:, :1].expand_as(heads)

    attention = PlainAttention if repaired else KernelAttention
    return PlainDecoder(PlainBlock(attention()) for _ in range(DEPTH))


@wild_fault(
    VARIANT_FAULTS,
    "yflyzhang/AnnotatedTransformer#1",
    "Values are computed by the projection of keys; the projection of values is never called.",
    ("parameters-unused",),
    sublayer="attention",
)
def values_by_the_projection_of_keys(repaired: bool) -> nn.Module:
    """A copied line in which one letter was not changed."""

    class MultiHeadedAttention(PlainAttention):
        def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
            query, key = self.split(self.query(x)), self.split(self.key(x))
            value = self.split(self.key(x))
            return self.out(self.merge(self.weights(self.hide(self.logits(query, key))) @ value))

    attention = PlainAttention if repaired else MultiHeadedAttention
    return PlainDecoder(PlainBlock(attention()) for _ in range(DEPTH))


@wild_fault(
    VARIANT_FAULTS,
    "google/objax#94",
    "Initial values of the norm's gain and bias are exchanged: gain zero, bias one.",
    ("norm-gain-small", "weights-zero"),
)
def gain_and_bias_exchanged(repaired: bool) -> nn.Module:
    """Every norm returns ones, whatever enters."""
    model = PlainDecoder(PlainBlock() for _ in range(DEPTH))
    if not repaired:
        for module in model.modules():
            if isinstance(module, nn.LayerNorm):
                nn.init.zeros_(module.weight)
                nn.init.ones_(module.bias)
    return model


@wild_fault(
    VARIANT_FAULTS,
    "georgepar/slp#26",
    "The skip around attention to the encoder carries the encoder's output instead of the decoder's stream.",
    ("residual-from-wrong-point", "residual-missing"),
    feed=pair_ids,
)
def cross_skip_from_the_encoder(repaired: bool) -> nn.Module:
    """Source and target have the same length, so shapes do not object."""

    class DecoderLayer(ReadingBlock):
        def forward(self, x: Tensor, memory: Tensor) -> Tensor:
            x = self.norm1(x + self.attention(x))
            x = self.norm2(memory + self.cross(x, memory))
            return self.norm3(x + self.mlp(x))

    block = ReadingBlock if repaired else DecoderLayer
    return PlainTranslator(block() for _ in range(DEPTH))


@wild_fault(
    VARIANT_FAULTS,
    "maxjcohen/transformer#23",
    "Attention to the encoder is done by the self-attention module; the module built for it is never called.",
    ("parameters-unused", "modules-shared"),
    feed=pair_ids,
)
def self_attention_reads_the_encoder(repaired: bool) -> nn.Module:
    """One module in two places of the layer, another in none."""

    class Decoder(ReadingBlock):
        def forward(self, x: Tensor, memory: Tensor) -> Tensor:
            x = self.norm1(x + self.attention(x))
            self.attention.causal = False
            x = self.norm2(x + self.attention(x, memory))
            self.attention.causal = True
            return self.norm3(x + self.mlp(x))

    block = ReadingBlock if repaired else Decoder
    return PlainTranslator(block() for _ in range(DEPTH))
