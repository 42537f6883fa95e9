"""Low-rank adapters, written out: W x + B A x with W frozen.

Hu et al. 2021, arXiv 2106.09685. A is drawn and B is zero, so that a model starts as it was.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leadline.testing.faults.hosts.entry import Host

__all__ = ["LoraLinear", "add_lora"]

RANK = 4


class LoraLinear(nn.Module):
    """A frozen layer and its adapter."""

    def __init__(
        self, layer: nn.Module, width_in: int, width_out: int, *, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.layer = layer
        self.lora_A = nn.Linear(width_in, RANK, bias=False)
        self.lora_B = nn.Linear(RANK, width_out, bias=False)
        with torch.no_grad():
            noise = torch.randn(self.lora_A.weight.shape, generator=generator)
            self.lora_A.weight.copy_(noise * width_in**-0.5)
            self.lora_B.weight.zero_()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.lora_B(self.lora_A(x))


def add_lora(model: nn.Module, host: Host, *, generator: torch.Generator) -> list[LoraLinear]:
    """Freeze a model and adapt the attention output and one MLP matrix of every layer."""
    model.requires_grad_(False)
    adapters = []
    for block in model.get_submodule(host.layout.outer.blocks).children():
        for role in host.layout.adapted:
            slot = host.layout.weights[role]
            owner, _, name = slot.path.rpartition(".")
            layer = block.get_submodule(slot.path)
            shape: tuple[int, int] = tuple(layer.weight.shape)  # type: ignore[assignment]
            out, into = reversed(shape) if slot.turned else shape
            adapter = LoraLinear(layer, into, out, generator=generator)
            setattr(block.get_submodule(owner), name, adapter)
            adapters.append(adapter)
    return adapters
