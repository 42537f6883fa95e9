"""What a training step costs, in floating-point operations.

Counted by torch on tensors without numbers: the products of one forward and one backward pass
(a multiply and an add are two operations). What is no matrix product (norms, activations, the
optimizer) is not counted.

Some parts cannot be run without numbers. A model with one of them is built and run with one and
with two examples, and what a further example adds is added for all others:

    c(n) = c(1) + (n - 1) (c(2) - c(1))

Attention is then computed by plain products, as it is without numbers, so that the two counts agree.
"""

from __future__ import annotations

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from leadline.errors import LabError, LeadlineError
from leadline.parts import Recipe, Transformer

__all__ = ["affordable_steps", "flops_of"]


def flops_of(recipe: Recipe, *, examples: int, length: int) -> float:
    """Count the operations of one training step of so many examples of that length."""
    try:
        with torch.device("meta"):
            return _count_flops(Transformer(recipe, draw=False), examples, length)
    except LeadlineError:
        raise
    except Exception:  # a part that needs numbers raises whatever it likes
        model = Transformer(recipe).eval()  # nothing is dropped, as without numbers
        one = _count_flops(model, 1, length)
        return one + (examples - 1) * (_count_flops(model, 2, length) - one)


def affordable_steps(steps: int, *, cost: float, flops: float | None) -> int:
    """Return how many of the steps a budget of FLOPs allows; refuse a budget that allows none."""
    if flops is None:
        return steps
    if cost > flops:
        raise LabError(
            f"One step costs {cost:.3g} FLOPs and the budget is {flops:.3g}; raise it, or choose "
            "a smaller model or batch."
        )
    return min(steps, int(flops // cost))


def _count_flops(model: Transformer, examples: int, length: int) -> float:
    ids = torch.zeros(examples, length, dtype=torch.long)
    counter = FlopCounterMode(display=False)
    with sdpa_kernel(SDPBackend.MATH), counter:
        logits = model(ids)
        cross_entropy(logits.flatten(0, 1), ids.flatten()).backward()
    return float(counter.get_total_flops())
