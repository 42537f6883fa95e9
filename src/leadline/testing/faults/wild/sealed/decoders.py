"""Sealed wild faults in plain causal decoders."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leadline.testing.faults.wild.case import WildFault, wild_fault
from leadline.testing.faults.wild.modules import (
    DEPTH,
    WIDTH,
    PlainAttention,
    PlainBlock,
    PlainDecoder,
    rotate,
)

__all__ = ["DECODER_FAULTS"]

DECODER_FAULTS: list[WildFault] = []


def _decoder(attention: type[PlainAttention]) -> PlainDecoder:
    return PlainDecoder(PlainBlock(attention()) for _ in range(DEPTH))


@wild_fault(
    DECODER_FAULTS,
    "jsbaan/transformer-from-scratch#6",
    "The outputs of the heads are reshaped without a permutation first, which mixes chunks of different tokens into one token.",
    ("heads-split-wrong", "future-leaks"),
    sublayer="attention",
)
def heads_merged_without_permute(repaired: bool) -> nn.Module:
    """[example, head, token, head width] reshaped to [example, token, width] as it lies."""

    class MultiHeadAttention(PlainAttention):
        def merge(self, x: Tensor) -> Tensor:
            examples, heads, tokens, width = x.shape
            return x.reshape(examples, tokens, heads * width)

    return _decoder(PlainAttention if repaired else MultiHeadAttention)


@wild_fault(
    DECODER_FAULTS,
    "harvard-edge/cs249r_book#1785",
    "An additive mask, zero where attention is allowed, is read as flags, so every allowed logit gets -1e9 too.",
    ("attention-uniform",),
    sublayer="attention",
)
def additive_mask_read_as_flags(repaired: bool) -> nn.Module:
    """Beside -1e9 float32 has no room for the logits: all that is left is the mean."""

    class ScaledDotProductAttention(PlainAttention):
        def hide(self, logits: Tensor) -> Tensor:
            mask = torch.full_like(logits, float("-inf")).triu(1)
            return logits + (1 - mask) * -1e9

    return _decoder(PlainAttention if repaired else ScaledDotProductAttention)


@wild_fault(
    DECODER_FAULTS,
    "mlfoundations/open_lm#4",
    "The rotary embedding runs along the axis of heads instead of the axis of tokens.",
    ("positions-unused", "positions-wrong"),
    sublayer="attention",
)
def rotary_along_heads(repaired: bool) -> nn.Module:
    """Positions are taken from the second axis, which holds the heads."""

    class RotaryAttention(PlainAttention):
        def place(self, x: Tensor) -> Tensor:
            return rotate(x, position_axis=-2 if repaired else 1)

    blocks = (PlainBlock(RotaryAttention()) for _ in range(DEPTH))
    return PlainDecoder(blocks, learned_positions=False)


@wild_fault(
    DECODER_FAULTS,
    "lucidrains/audiolm-pytorch#265",
    "What attention returns is kept under a name that nothing reads, so attention has no effect.",
    ("write-lost", "parameters-unused", "write-dead"),
    sublayer="attention",
)
def attention_output_never_read(repaired: bool) -> nn.Module:
    """The sum with attention is assigned to another variable than the stream."""

    class CachedBlock(PlainBlock):
        def forward(self, x: Tensor) -> Tensor:
            _attended = x + self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))

    block = PlainBlock if repaired else CachedBlock
    return PlainDecoder(block() for _ in range(DEPTH))


@wild_fault(
    DECODER_FAULTS,
    "pbloem/former#10",
    "The mask starts at the diagonal, so the first token sees nothing and its softmax is NaN.",
    ("mask-row-empty", "past-unreached", "not-finite"),
    sublayer="attention",
    finite=False,
)
def diagonal_hidden(repaired: bool) -> nn.Module:
    """Upper triangle with offset 0 instead of 1."""

    class SelfAttention(PlainAttention):
        def hide(self, logits: Tensor) -> Tensor:
            hidden = torch.ones_like(logits, dtype=torch.bool).triu(0)
            return logits.masked_fill(hidden, float("-inf"))

    return _decoder(PlainAttention if repaired else SelfAttention)


@wild_fault(
    DECODER_FAULTS,
    "jadore801120/attention-is-all-you-need-pytorch#17",
    "Layer normalisation takes mean and deviation along the tokens instead of the features.",
    ("future-leaks", "norm-misplaced"),
)
def norm_over_tokens(repaired: bool) -> nn.Module:
    """In a causal model such a norm carries the future into the past."""

    class LayerNormalization(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(WIDTH))
            self.bias = nn.Parameter(torch.zeros(WIDTH))
            self.axis = -1 if repaired else 1

        def forward(self, x: Tensor) -> Tensor:
            centred = x - x.mean(self.axis, keepdim=True)
            deviation = centred.pow(2).mean(self.axis, keepdim=True).add(1e-5).sqrt()
            return self.weight * centred / deviation + self.bias

    class NormalisedBlock(PlainBlock):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = LayerNormalization(), LayerNormalization()

    model = PlainDecoder(NormalisedBlock() for _ in range(DEPTH))
    model.norm = LayerNormalization()
    return model


@wild_fault(
    DECODER_FAULTS,
    "cmu-l3/anlp-fall2025-code#1",
    "Positions count the examples of the batch, so all tokens of a sequence get the same one.",
    ("positions-unused", "positions-wrong"),
)
def position_of_the_example(repaired: bool) -> nn.Module:
    """The range has the length of the first axis."""

    class TransformerLM(PlainDecoder):
        def embed(self, ids: Tensor) -> Tensor:
            assert self.positions is not None
            places = torch.arange(ids.size(0), device=ids.device).unsqueeze(1)
            return self.embedding(ids) + self.positions(places)

    model = PlainDecoder if repaired else TransformerLM
    return model(PlainBlock() for _ in range(DEPTH))


@wild_fault(
    DECODER_FAULTS,
    "facebookresearch/xformers#103",
    "The causal mask is combined with a given mask and skipped where none is given.",
    ("future-leaks", "not-as-intended"),
    sublayer="attention",
    intended="pre-norm, causal",
)
def causal_mask_only_beside_another(repaired: bool) -> nn.Module:
    """The model never gives a mask of its own."""

    class MaskedAttention(PlainAttention):
        mask: Tensor | None = None

        def hide(self, logits: Tensor) -> Tensor:
            return logits if self.mask is None else super().hide(logits + self.mask)

    return _decoder(PlainAttention if repaired else MaskedAttention)
