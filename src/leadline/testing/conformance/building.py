"""How a part is built: every weight drawn, by the seed alone, in every layer anew, and stored."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leadline.testing.conformance._case import PartCase
from leadline.testing.conformance._check import Question, require, some

__all__ = ["questions"]


def questions(case: PartCase) -> list[Question]:
    """The checks of building and storing."""
    return [
        ("builds", lambda: _builds(case)),
        ("filled", lambda: _filled(case)),
        ("random numbers", lambda: _random_numbers(case)),
        ("layers differ", lambda: _layers_differ(case)),
        ("save and load", lambda: _save_and_load(case)),
    ]


def _builds(case: PartCase) -> str:
    count = sum(p.numel() for p in case.fresh.parameters())
    recipe = case.recipe
    beside = {
        "connection": f", placement {recipe.choice('placement')}",
        "placement": f", connection {recipe.choice('connection')}",
    }
    sizes = f"depth {recipe.depth}, width {recipe.width}{beside.get(case.kind, '')}"
    return f"{sizes}, {count:,} parameters"


def _filled(case: PartCase) -> str:
    """Torch can fill what `torch.empty` returns with NaN; a weight that nobody drew keeps it."""
    with _empty_is_nan():
        model = case.build()
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    unfilled = [n for n, t in tensors.items() if t.is_floating_point() and not t.isfinite().all()]
    require(
        not unfilled,
        f"{some(unfilled)} hold memory that nothing filled, or are not finite; name such a weight in "
        "weights(), or fill it in the constructor",
    )
    return f"{len(tensors)} tensors, all drawn"


def _random_numbers(case: PartCase) -> str:
    def states() -> tuple[Any, ...]:
        mine: Any = np.random.get_state()
        return torch.random.get_rng_state().tolist(), random.getstate(), mine[1].tolist(), mine[2:]

    before = states()
    model = case.build()
    require(states() == before, "building it moves the global random numbers")
    torch.manual_seed(1234)
    again, other = case.build(), case.build(seed=1)
    for (name, one), two in zip(model.named_parameters(), again.parameters(), strict=True):
        require(torch.equal(one, two), f"{name} depends on more than the seed of the model")
    pairs = zip(model.parameters(), other.parameters(), strict=True)
    require(any(not torch.equal(a, b) for a, b in pairs), "another seed gives the same weights")
    return "the seed alone decides"


def _layers_differ(case: PartCase) -> str:
    """Weights that the seed moves are drawn, so no two layers may start with the same.

    A weight that no seed moves may be an identity matrix or a ramp; where its values look drawn
    (mostly different, in no order), it was drawn from a generator with a seed of its own.
    """
    other = dict(case.build(seed=1).named_parameters())
    by_role: dict[str, list[tuple[str, Tensor]]] = {}
    for name, weight in case.fresh.named_parameters():
        layer, _, role = name.removeprefix("blocks.").partition(".")
        moved = not torch.equal(weight, other[name])
        if name.startswith("blocks.") and layer.isdigit() and (moved or _looks_drawn(weight)):
            by_role.setdefault(role, []).append((name, weight))
    for weights in by_role.values():
        for i, (name, weight) in enumerate(weights):
            for twin, twin_weight in weights[:i]:
                require(
                    weight.shape != twin_weight.shape or not torch.equal(weight, twin_weight),
                    f"{twin} and {name} start with the same random numbers: the layers are clones",
                )
    return f"{len(by_role)} drawn weights, different in every layer"


def _looks_drawn(weight: Tensor) -> bool:
    values = weight.detach().flatten()
    steps = values.diff()
    ordered = bool((steps >= 0).all() or (steps <= 0).all())
    return values.numel() >= 4 and 2 * len(values.unique()) > values.numel() and not ordered


def _save_and_load(case: PartCase) -> str:
    model, other, inputs = case.build(stirred=True), case.build(seed=1), case.inputs(2, 5)
    stored: dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        require(isinstance(value, Tensor), f"{name} in the state dict is not a tensor")
        # Through bytes, as a file would: what is shared or a view in memory comes back apart.
        flat = value.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        copied = torch.frombuffer(bytearray(flat), dtype=value.dtype) if flat else value.clone()
        stored[name] = copied.view(value.shape)
    other.load_state_dict(stored)
    with torch.no_grad():
        require(
            torch.equal(model(inputs), other(inputs)),
            "loaded into a model of another seed, the weights give another result; what is drawn "
            "must be a parameter or a buffer",
        )
        require(
            torch.equal(model(inputs), copy.deepcopy(model)(inputs)),
            "a deep copy gives another result",
        )
    return f"{len(stored)} tensors, bit for bit"


@contextlib.contextmanager
def _empty_is_nan() -> Iterator[None]:
    memory: Any = torch.utils.deterministic
    enabled = torch.are_deterministic_algorithms_enabled()
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    filled = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    memory.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(enabled, warn_only=only_warns)
        memory.fill_uninitialized_memory = filled
