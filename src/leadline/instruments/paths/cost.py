"""What `paths` costs: layer l works on l + 1 components, so L layers do L (L + 1) / 2 of them.

Beside them stands one pass undisturbed, and one of the head for each of the L + 1 components, with a
loss each. What norms and gates do to components is frozen and moves as many numbers.
"""

from __future__ import annotations

from leadline.instruments.cost.rates import Rates
from leadline.instruments.cost.result import CostPart
from leadline.instruments.cost.sizes import CountedModel
from leadline.instruments.cost.work import NO_WORK
from leadline.instruments.passes.cost import part_of

__all__ = ["paths_of"]


def paths_of(model: CountedModel, rates: Rates) -> list[CostPart]:
    """The pass that carries components, and the head on each of them."""
    plain = model.forward
    layers, blocks = NO_WORK, 0.0
    components = 1
    for shape in plain.stacks:
        depth = len(shape.paths)
        layers = layers + ((depth + 3) / 2) * shape.work
        blocks += shape.work.flops
        components = depth + 1
    outside = max(plain.forward.flops - blocks, 0.0) / max(plain.forward.flops, 1.0)
    head = components * outside * plain.forward
    size = model.sizes()[0]
    stream = size.stream * components * 6
    carried = part_of(
        "layers", "layers on all components", layers, rates, memory=plain.memory + stream
    )
    undisturbed = part_of(
        "forward", "one pass undisturbed", plain.forward, rates, memory=plain.memory,
        passes={"forward": 1},
    )  # fmt: skip
    logits = part_of("logits", "the head on every component", head, rates, memory=2 * plain.memory)
    return [undisturbed, carried, logits]
