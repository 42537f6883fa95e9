"""Buffers and numbers that a conversion, a cast or an allocation damaged."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from leadline.testing.faults.wild.case import WildFault, wild_fault
from leadline.testing.faults.wild.modules import (
    DEPTH,
    HEADS,
    WIDTH,
    PlainAttention,
    PlainBlock,
    PlainDecoder,
    token_ids,
)

__all__ = ["NUMBER_FAULTS"]

NUMBER_FAULTS: list[WildFault] = []


@wild_fault(
    NUMBER_FAULTS,
    "allenai/OLMo-core#698",
    "The buffer with the scale of each layer is allocated anew without its contents before the weights are initialised, and nothing fills it again.",
    ("buffer-wrong", "write-dead"),
)
def scale_buffer_emptied(repaired: bool) -> nn.Module:
    """LayerNorm scaling, 1 / sqrt(layer). Memory that nobody wrote reads as zeros here."""

    class ScaledBlock(PlainBlock):
        def __init__(self, layer: int) -> None:
            super().__init__()
            self.register_buffer("scale", torch.tensor(1 / math.sqrt(layer)))

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.attention(self.scale * self.norm1(x))
            return x + self.mlp(self.scale * self.norm2(x))

    model = PlainDecoder(ScaledBlock(layer) for layer in range(1, DEPTH + 1))
    if not repaired:
        for buffer in model.buffers():
            buffer.zero_()
    return model


@wild_fault(
    NUMBER_FAULTS,
    "microsoft/onnxruntime-genai#2444",
    "The largest activation grows from 35 in the first layer to 45,344 and passes the ceiling of float16, 65,504, in the last one; all logits are NaN.",
    ("float16-overflow", "not-finite"),
    layers=(6,),
    finite=False,
)
def stream_beyond_float16(repaired: bool) -> nn.Module:
    """Writes grow about fivefold from layer to layer; the repaired model is kept in float32."""
    blocks = [PlainBlock() for _ in range(6)]
    model = PlainDecoder(blocks)
    with torch.no_grad():
        for layer, block in enumerate(blocks):
            block.mlp.down.weight.mul_(160 * 5.0**layer)
    return model if repaired else model.half()


@wild_fault(
    NUMBER_FAULTS,
    "huggingface/transformers#29285",
    "Positions and frequencies of the rotary embedding are bfloat16, in which integers above 256 are not exact.",
    ("rotary-precision", "buffer-wrong", "positions-wrong"),
    sublayer="attention",
    feed=lambda: token_ids(2, 384),
)
def phases_in_bfloat16(repaired: bool) -> nn.Module:
    """The phases inherit their type from a buffer that was cast with the model."""

    class RotaryAttention(PlainAttention):
        inv_freq: Tensor

        def __init__(self) -> None:
            super().__init__(causal=True)
            half = WIDTH // HEADS // 2
            frequencies = 10000.0 ** (-torch.arange(half) / half)
            self.register_buffer(
                "inv_freq", frequencies if repaired else frequencies.to(torch.bfloat16)
            )

        def place(self, x: Tensor) -> Tensor:
            positions = torch.arange(x.size(-2), device=x.device).to(self.inv_freq.dtype)
            phases = torch.outer(positions, self.inv_freq)
            cosine, sine = phases.cos().to(x.dtype), phases.sin().to(x.dtype)
            left, right = x.chunk(2, dim=-1)
            return torch.cat((left * cosine - right * sine, left * sine + right * cosine), dim=-1)

    blocks = (PlainBlock(RotaryAttention()) for _ in range(DEPTH))
    return PlainDecoder(blocks, learned_positions=False)
