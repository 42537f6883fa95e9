"""Skips that were written wrongly."""

from __future__ import annotations

from torch import Tensor, nn

from leadline.testing.faults.wild.case import WildFault, wild_fault
from leadline.testing.faults.wild.modules import (
    DEPTH,
    WIDTH,
    PlainBlock,
    PlainDecoder,
    PlainEncoder,
    SettledBlock,
)

__all__ = ["RESIDUAL_FAULTS"]

RESIDUAL_FAULTS: list[WildFault] = []


@wild_fault(
    RESIDUAL_FAULTS,
    "kyegomez/BitNet#32",
    "What attention returns is assigned to x and added to itself, so the stream that entered is lost.",
    ("residual-missing", "residual-doubled", "residual-from-wrong-point"),
    sublayer="attention",
)
def attention_added_to_itself(repaired: bool) -> nn.Module:
    """The line after attention reads `x = x + x`."""

    class BitBlock(PlainBlock):
        def forward(self, x: Tensor) -> Tensor:
            x = self.attention(self.norm1(x))
            x = x + x
            return self.mlp(self.norm2(x)) + x

    block = PlainBlock if repaired else BitBlock
    return PlainDecoder(block() for _ in range(DEPTH))


@wild_fault(
    RESIDUAL_FAULTS,
    "Howuhh/faster-trajectory-transformer#3",
    "Attention is added to the normalised stream instead of the raw one.",
    ("residual-from-wrong-point", "norm-misplaced"),
    sublayer="attention",
    intended="pre-norm, causal",
)
def skip_behind_the_norm(repaired: bool) -> nn.Module:
    """The norm of a pre-norm block overwrites what the skip should carry."""

    class TrajectoryBlock(PlainBlock):
        def forward(self, x: Tensor) -> Tensor:
            x = self.norm1(x)
            x = x + self.attention(x)
            return x + self.mlp(self.norm2(x))

    block = PlainBlock if repaired else TrajectoryBlock
    return PlainDecoder(block() for _ in range(DEPTH))


@wild_fault(
    RESIDUAL_FAULTS,
    "strutive07/transformer-tensorflow2.0#14",
    "The skip around the feed-forward part starts at the layer's input, so attention bypasses it.",
    ("residual-from-wrong-point",),
    sublayer="mlp",
)
def skip_from_the_layer_input(repaired: bool) -> nn.Module:
    """Both skips of a post-norm layer start at the same tensor."""

    class EncoderLayer(SettledBlock):
        def forward(self, x: Tensor) -> Tensor:
            attended = self.norm1(x + self.attention(x))
            return self.norm2(x + self.mlp(attended))

    block = SettledBlock if repaired else EncoderLayer
    return PlainEncoder(block() for _ in range(DEPTH))


@wild_fault(
    RESIDUAL_FAULTS,
    "labmlai/annotated_deep_learning_paper_implementations#145",
    "DeepNorm multiplies the branch by alpha instead of the stream, and its norm is never called.",
    ("residual-scale-wrong", "norm-missing", "parameters-unused"),
    intended="deepnorm",
)
def deepnorm_on_the_branch(repaired: bool) -> nn.Module:
    """x + alpha f(x) where norm(alpha x + f(x)) is meant."""

    class DeepNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.alpha = (2 * DEPTH) ** 0.25
            self.layer_norm = nn.LayerNorm(WIDTH)

        def forward(self, x: Tensor, gx: Tensor) -> Tensor:
            return x + self.alpha * gx

    class RepairedDeepNorm(DeepNorm):
        def forward(self, x: Tensor, gx: Tensor) -> Tensor:
            return self.layer_norm(self.alpha * x + gx)

    class DeepBlock(PlainBlock):
        def __init__(self) -> None:
            super().__init__()
            del self.norm1, self.norm2
            norm = RepairedDeepNorm if repaired else DeepNorm
            self.attention_norm, self.mlp_norm = norm(), norm()

        def forward(self, x: Tensor) -> Tensor:
            x = self.attention_norm(x, self.attention(x))
            return self.mlp_norm(x, self.mlp(x))

    return PlainDecoder((DeepBlock() for _ in range(DEPTH)), final_norm=False)
