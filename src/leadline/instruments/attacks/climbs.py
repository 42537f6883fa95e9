"""Networks that climb towards a violation of a bound on rank collapse, and their facts.

Inputs, weights and their sizes are moved by Adam so that the logarithm of measured over predicted
rises; what is predicted is computed from the same facts as tensors (`FactTensors`), with

    log c = log(lambda scaling (sum_h |W_QK,h|_1) sqrt(max_h |W_h|_1 max_h |W_h|_inf)) [+ log gamma]
    log r' - 3 log r - log c       of every layer, weighted by the goal.

Constants do not matter to an ascent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from leadline.instruments.attacks.attention import RATE
from leadline.instruments.attacks.stacks import FactTensors, Stacks
from leadline.instruments.attacks.steps import composite
from leadline.theory.rank_collapse import LayerFacts, StackFacts

__all__ = ["GOALS", "CollapseGoal", "Path", "add_noise", "climb_stacks", "stack_facts"]

CollapseGoal = Literal["chain", "layer", "weights", "smallest", "fall"]
GOALS: tuple[CollapseGoal, ...] = ("chain", "layer", "weights", "smallest", "fall")
"""What rises: the ratio after all layers, that of the layers one by one, that of the bounds without
gamma, of the smallest residual; `fall` lets the residual fall, against lower bounds."""
Path = tuple[StackFacts, ...]
"""The facts of one network at the stops of its path."""
NOISE = 0.05
"""What is added to the free tensors before an ascent: an entry that is exactly zero may not move."""
TEN = math.log(10.0)
EQUAL_LOG = -12.0
"""Tokens whose residual is below ten to this power of their size are equal but for rounding."""


Look = Callable[[Stacks, FactTensors], list[StackFacts]]


def add_noise(stacks: Stacks, *, generator: torch.Generator) -> None:
    """Move every free tensor a little, so that an ascent can move all of its entries."""
    with torch.no_grad():
        for free in stacks.free.values():
            noise = torch.randn(free.shape, generator=generator, dtype=free.dtype)
            free.add_(noise, alpha=NOISE)


def stack_facts(stacks: Stacks, tensors: FactTensors) -> list[StackFacts]:
    """Return the facts of every network, as the bounds take them.

    Tokens that differ by no more than the rounding of their mean enter as equal.
    """
    tokens = stacks.tensor("tokens")
    assert tokens is not None
    equal = tensors.log_composite[:, 0] < composite(tokens).log() + TEN * EQUAL_LOG
    numbers: dict[str, Any] = {
        name: value.tolist() if isinstance(value := getattr(tensors, name), Tensor) else None
        for name in FactTensors.__dataclass_fields__
    }

    def one(name: str, network: int, layer: int) -> float | None:
        return None if numbers[name] is None else numbers[name][network][layer]

    def residuals(name: str, network: int) -> tuple[float, ...]:
        first, *rest = (value / TEN for value in numbers[name][network])
        return (-math.inf if equal[network] else first, *rest)

    return [
        StackFacts(
            tokens=stacks.shape.tokens,
            layers=tuple(
                LayerFacts(
                    query_key=tuple(numbers["query_key"][i][l]),
                    value_output_1=tuple(numbers["value_output_1"][i][l]),
                    value_output_inf=tuple(numbers["value_output_inf"][i][l]),
                    scaling=stacks.scaling,
                    gamma=tuple(numbers["gamma"][i][l]),
                    joint_gamma=numbers["joint_gamma"][i][l],
                    lipschitz=numbers["lipschitz"][i][l],
                    alignment=one("alignment", i, l),
                    overlap=one("overlap", i, l),
                )
                for l in range(stacks.shape.depth)
            ),
            mask=stacks.kind.mask,
            skip=stacks.kind.skip,
            biased=stacks.kind.biased or stacks.kind.orthogonal,
            log10_composite=residuals("log_composite", i),
            log10_smallest=residuals("log_smallest", i),
            log10_frobenius=residuals("log_frobenius", i),
        )
        for i in range(stacks.batch)
    ]


def climb_stacks(
    stacks: Stacks, *, steps: int, goal: CollapseGoal, look: Look = stack_facts
) -> list[Path]:
    """Move inputs, weights and sizes by Adam; return each network's facts at start, middle, end.

    `look` takes the facts at a stop; it may change the networks as long as it changes them back.
    """
    ascent = torch.optim.Adam(stacks.parameters(), lr=RATE, maximize=True)
    stops: dict[int, list[StackFacts]] = {}
    places = (0, steps // 2, steps)
    for step in range(steps + 1):
        tensors = stacks.run(smallest=goal == "smallest" or step in places)
        ascent.zero_grad()
        if step < steps:
            _height(tensors, goal).sum().backward()
        if step in places:
            stops[step] = look(stacks, tensors)
        ascent.step()
    return list(zip(*(stops[place] for place in places), strict=True))


def _height(tensors: FactTensors, goal: CollapseGoal) -> Tensor:
    """What an ascent raises, one number per network, but for constants."""
    if goal == "fall":
        return tensors.log_frobenius[:, 0] - tensors.log_frobenius[:, -1]
    residual = tensors.log_smallest if goal == "smallest" else tensors.log_composite
    written = tensors.value_output_1.amax(-1).log() + tensors.value_output_inf.amax(-1).log()
    weight = tensors.lipschitz.log() + tensors.query_key.sum(-1).log() + 0.5 * written
    if goal in ("chain", "layer"):
        weight = weight + tensors.joint_gamma.log()
    rise = residual[:, 1:] - 3.0 * residual[:, :-1] - weight
    depth = rise.shape[1]
    shares = [1.0 if goal == "layer" else 3.0 ** (depth - 1 - layer) for layer in range(depth)]
    return rise @ rise.new_tensor(shares)
