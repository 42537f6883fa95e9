"""Modules that are shared, dead or unknown to the model that calls them."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn

from leadline.testing.faults.wild.case import WildFault, wild_fault
from leadline.testing.faults.wild.modules import (
    DEPTH,
    WIDTH,
    PlainAttention,
    PlainBlock,
    PlainDecoder,
    PlainEncoder,
    PlainMlp,
    SettledBlock,
    draw_weights,
)

__all__ = ["STRUCTURE_FAULTS"]

STRUCTURE_FAULTS: list[WildFault] = []


@wild_fault(
    STRUCTURE_FAULTS,
    "espnet/espnet#1278",
    "One encoder layer is built and called in a loop, so all layers are the same layer.",
    ("modules-shared",),
)
def one_layer_called_again(repaired: bool) -> nn.Module:
    """The loop that should walk over layers calls one of them again and again."""

    class LoopedEncoder(PlainEncoder):
        def forward(self, ids: Tensor) -> Tensor:
            x = self.positions(self.embedding(ids))
            for _ in range(DEPTH):
                x = self.blocks[0](x)
            return self.head(x)

    if repaired:
        return PlainEncoder(SettledBlock() for _ in range(DEPTH))
    return LoopedEncoder([SettledBlock()])


@wild_fault(
    STRUCTURE_FAULTS,
    "habla-liaa/encodecmae#3",
    "The feed-forward part is instantiated once and handed to every layer, so all layers share its weights.",
    ("modules-shared",),
    sublayer="mlp",
)
def one_mlp_for_all_layers(repaired: bool) -> nn.Module:
    """Attention is built per layer, the MLP once."""

    class TransformerLayer(PlainBlock):
        def __init__(self, feed_forward: nn.Module) -> None:
            super().__init__(causal=False)
            self.mlp = feed_forward

    shared = PlainMlp()
    parts = (PlainMlp() if repaired else shared for _ in range(DEPTH))
    return PlainEncoder(TransformerLayer(part) for part in parts)


@wild_fault(
    STRUCTURE_FAULTS,
    "yz93/LAVT-RIS#25",
    "Both matrices of the gate start at zero, so the gate is zero and so is every gradient that it gets.",
    ("gradient-cut", "weights-zero", "write-dead", "adapter-cannot-learn"),
)
def gate_of_two_zeros(repaired: bool) -> nn.Module:
    """x + tanh(B relu(A r)) r with A = B = 0 behind every block."""

    class FusionBlock(PlainBlock):
        def __init__(self) -> None:
            super().__init__(causal=False)
            self.norm3 = nn.LayerNorm(WIDTH)
            self.fusion = PlainAttention(causal=False)
            self.gate = nn.Sequential(
                nn.Linear(WIDTH, WIDTH, bias=False),
                nn.ReLU(),
                nn.Linear(WIDTH, WIDTH, bias=False),
                nn.Tanh(),
            )

        def forward(self, x: Tensor) -> Tensor:
            x = super().forward(x)
            residual = self.fusion(self.norm3(x))
            return x + self.gate(residual) * residual

    blocks = [FusionBlock() for _ in range(DEPTH)]
    model = PlainEncoder(blocks)
    if not repaired:
        for block in blocks:
            for weight in block.gate.parameters():
                nn.init.zeros_(weight)
    return model


@wild_fault(
    STRUCTURE_FAULTS,
    "maruya24/pytorch_robotics_transformer#3",
    "The layers stand in a plain list, so their parameters are not registered and no optimizer sees them.",
    ("parameters-unregistered",),
    repair_changes_output=False,
)
def layers_in_a_plain_list(repaired: bool) -> nn.Module:
    """A decoder whose blocks are no children of it."""

    class ListedDecoder(PlainDecoder):
        def __init__(self, blocks: Iterable[nn.Module]) -> None:
            super().__init__(blocks)
            listed = list(self.blocks)
            del self.blocks
            self.blocks = listed

    block_list = [PlainBlock() for _ in range(DEPTH)]
    return PlainDecoder(block_list) if repaired else ListedDecoder(block_list)


@wild_fault(
    STRUCTURE_FAULTS,
    "Lightning-AI/litgpt#1229",
    "Both factors of every LoRA adapter stay zero because the model is initialised without its weights being touched, so their gradients are zero for ever.",
    ("adapter-cannot-learn", "weights-zero", "gradient-cut"),
    sublayer="attention",
    repair_changes_output=False,
)
def adapter_of_two_zeros(repaired: bool) -> nn.Module:
    """Low-rank adapters on queries and values of a frozen decoder."""

    class LoraLinear(nn.Module):
        def __init__(self, linear: nn.Linear) -> None:
            super().__init__()
            self.linear = linear.requires_grad_(False)
            self.lora_a = nn.Linear(WIDTH, 4, bias=False)
            self.lora_b = nn.Linear(4, WIDTH, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x) + 2.0 * self.lora_b(self.lora_a(x))

    blocks = [PlainBlock() for _ in range(DEPTH)]
    model = PlainDecoder(blocks).requires_grad_(False)
    for block in blocks:
        for name in ("query", "value"):
            adapter = LoraLinear(getattr(block.attention, name))
            draw_weights(adapter.lora_a)
            nn.init.zeros_(adapter.lora_b.weight)
            if not repaired:
                nn.init.zeros_(adapter.lora_a.weight)
            setattr(block.attention, name, adapter)
    return model
