"""What a placement declares of itself, and that every norm that it hands out fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from leadline.parts.place import Place
from leadline.parts.placements import PLACEMENTS, Placement
from leadline.testing.conformance._case import HEADS, WIDTH, PartCase, stir
from leadline.testing.conformance._check import Question, closeness, require

__all__ = ["questions"]

POINTS = ("query", "key", "value", "mixed", "hidden")
SETTLE_MISS = 0.05
"""How far the mean square of a settled stream may be from 1, because of the norm's eps."""
DEEP = 16


def questions(case: PartCase) -> list[Question]:
    """The checks of a placement's own word."""
    return [
        ("declarations", lambda: _declarations(case)),
        ("norms fit", lambda: _norms_fit(case)),
        ("opening, closing", lambda: _opening_and_closing(case)),
        ("settles", lambda: _settles(case)),
        ("varies", lambda: _varies(case)),
    ]


def _declarations(case: PartCase) -> str:
    placement = case.fresh.placement
    require(bool(placement.formula), "formula is empty; write the sublayer on one line")
    for name in ("settles", "varies", "opening", "closing"):
        value = getattr(placement, name)
        require(isinstance(value, bool), f"{name} is {value!r}, not True or False")
    require(placement.joined in (0, 1, 2), f"joined is {placement.joined!r}, not 0, 1 or 2")
    return placement.formula


def _place(layer: int, sublayer: int, sublayers: int) -> Place:
    branch = "joined" if sublayers == 1 else ("attention", "mlp")[sublayer - 1]
    return Place(
        width=WIDTH,
        heads=HEADS,
        depth=DEEP,
        layer=layer,
        sublayer=sublayer,
        sublayers=sublayers,
        branch=branch,
    )


def _norms_at(placement: Placement, place: Place) -> dict[str, tuple[nn.Module | None, list[int]]]:
    """Every norm at a place, and the shape that goes through it."""
    around: dict[str, Callable[[Place], nn.Module | None]] = {
        "enter": placement.enter,
        "exit": placement.exit,
        "settle": placement.settle,
    }
    norms = {name: (make(place), [2, 3, WIDTH]) for name, make in around.items()}
    for point in POINTS:
        norms[point] = placement.inside(place, point, WIDTH), [2, 3, WIDTH]
    norms["heads"] = placement.inside(place, "heads", HEADS), [2, HEADS, 3, WIDTH // HEADS]
    return norms


def _places(case: PartCase) -> tuple[Placement, int]:
    placement: Placement = PLACEMENTS.build(case.choice)
    return placement, 1 if placement.joined else 2


def _norms_fit(case: PartCase) -> str:
    placement, sublayers = _places(case)
    points: dict[str, None] = {}
    for layer in (1, DEEP // 2, DEEP):
        for sublayer in range(1, sublayers + 1):
            for name, (norm, shape) in _norms_at(
                placement, _place(layer, sublayer, sublayers)
            ).items():
                if norm is None:
                    continue
                require(
                    isinstance(norm, nn.Module), f"{name} is a {type(norm).__name__}, not a module"
                )
                x = torch.randn(shape)
                out = norm(x)
                require(
                    out.shape == x.shape and bool(out.isfinite().all()),
                    f"the norm {name} of layer {layer} gives {list(out.shape)} for {shape}, or "
                    "values that are not finite",
                )
                points[name] = None
    return ", ".join(points) or "no norm stands"


def _opening_and_closing(case: PartCase) -> str:
    model = case.fresh
    declared = model.placement
    for name, says, norm in (
        ("opening", declared.opening, getattr(model.embedding, "norm", None)),
        ("closing", declared.closing, model.norm),
    ):
        require(
            (norm is not None) == says,
            f"{name} is {says}, and the model has {'a' if norm is not None else 'no'} such norm",
        )
    words = [n for n, d in (("opening", declared.opening), ("closing", declared.closing)) if d]
    return " and ".join(words) or "neither"


def _settles(case: PartCase) -> str:
    """Check the mean square of the stream after every sublayer, with branches that write a lot."""
    model = case.build()
    for number, sublayer in enumerate(model.sublayers()):
        stir(nn.ModuleDict({str(number): sublayer.branch}))
    squares: list[Tensor] = []
    handles = [
        sublayer.register_forward_hook(
            lambda module, _, state: squares.append(
                module.connection.stream(state).square().mean(-1)  # type: ignore[operator]
            )
        )
        for sublayer in model.sublayers()
    ]
    with torch.no_grad():
        model(case.inputs(2, 5))
    for handle in handles:
        handle.remove()
    off = [float((square - 1).abs().max()) for square in squares]
    worst = max(off)
    if case.fresh.placement.settles:
        require(
            worst <= SETTLE_MISS,
            f"settles is declared, and the mean square of the stream is off 1 by {worst:.2g} after "
            f"write {off.index(worst) + 1}",
        )
        return f"mean square within {worst:.1g} of 1 after every write"
    require(worst > SETTLE_MISS, "the stream is normed after every write: declare settles")
    return "the stream is not normed after every write"


def _varies(case: PartCase) -> str:
    placement, sublayers = _places(case)
    differs = any(
        not _same(
            _norms_at(placement, _place(1, sublayer, sublayers)),
            _norms_at(placement, _place(layer, sublayer, sublayers)),
        )
        for sublayer in range(1, sublayers + 1)
        for layer in (2, DEEP // 2, DEEP)
    )
    declared = placement.varies
    require(declared or not differs, "the norms differ from layer to layer: declare varies")
    require(differs or not declared, f"varies is declared, and all of {DEEP} layers have the same")
    return "from layer to layer" if differs else "the same in all layers"


def _same(one: dict[str, Any], two: dict[str, Any]) -> bool:
    for name, (norm, shape) in one.items():
        other = two[name][0]
        if (norm is None) != (other is None):
            return False
        if norm is not None:
            x = torch.randn(shape, generator=torch.Generator().manual_seed(5))
            if closeness(norm(x), other(x)) > 1e-5:
                return False
    return True
