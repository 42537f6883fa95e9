"""What a training step costs, in floating-point operations.

Counted by torch on tensors without numbers: the products of one forward and one backward pass
(a multiply and an add are two operations). What is no matrix product (norms, activations, the
optimizer) is not counted.
"""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from leadline.parts import Recipe, Transformer

__all__ = ["flops_of"]


def flops_of(recipe: Recipe, *, examples: int, length: int) -> float:
    """The operations of one training step of so many examples of that length."""
    with torch.device("meta"):
        model = Transformer(recipe, draw=False)
        ids = torch.zeros(examples, length, dtype=torch.long)
        counter = FlopCounterMode(display=False)
        with counter:
            logits = model(ids)
            cross_entropy(logits.flatten(0, 1), ids.flatten()).backward()
    return float(counter.get_total_flops())
