"""What `leadline explain` tells of a part beyond its docstrings: computed, never typed.

The costs are counted on the part itself, built into a stack of twelve layers of width 768; the
placements that make no sense with a connection are asked for, one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import torch
from torch import nn

from leadline.parts import PARTS, Recipe
from leadline.parts.connections import CONNECTIONS, Connection
from leadline.parts.place import Place
from leadline.parts.placements import PLACEMENTS, Placement
from leadline.parts.recipes import RECIPES

__all__ = ["facts_of_part", "facts_of_recipe"]

WIDTH, HEADS, DEPTH = 768, 12, 12


def facts_of_part(kind: str, name: str) -> dict[str, str]:
    """What a part declares in words, what it costs, and what refuses it."""
    tell = {"connection": _of_connection, "placement": _of_placement}.get(kind, _no_facts)
    facts = tell(name)
    if kind in _COUNTED:
        facts["costs"] = _COUNTED[kind](name)
    return facts


def facts_of_recipe(name: str) -> dict[str, str]:
    """The fields of a recipe."""
    recipe: Recipe = RECIPES.build(name)
    return {field.name: str(getattr(recipe, field.name)) for field in fields(recipe)}


def _no_facts(name: str) -> dict[str, str]:
    return {}


def _of_connection(name: str) -> dict[str, str]:
    entry: type[Connection] = CONNECTIONS.get(name)
    facts = {"formula": entry.formula}
    facts["at_the_start"] = {
        "identity": "the identity: the update is not heard",
        "plain": "the plain connection, x + u",
        None: "neither the identity nor x + u",
    }[entry.starts_as]
    facts["zero_update"] = (
        "leaves the stream exactly as it was" if entry.keeps_identity else "changes the stream"
    )
    if entry.keeps_variance:
        facts["variance"] = "independent x and u of unit variance give unit variance"
    if entry.mixes is not None:
        facts["mixing"] = f"{entry.mixes}: rows and columns sum to 1"
    if entry.varies:
        facts["varies"] = "its numbers change from write to write"
    if entry.amplifies:
        facts["amplifies"] = "the stream is multiplied by more than 1: a norm must follow"
    if entry.init is not None:
        facts["init"] = f"{entry.init}, unless the recipe names another"
    facts["refused_by"] = _reasons(entry)
    return facts


def _reasons(entry: type[Connection]) -> str:
    """The placements that make no sense with a connection, by reason."""
    by_reason: dict[str, list[str]] = {}
    for name in PLACEMENTS:
        placement: Placement = PLACEMENTS.build(name)
        reason = entry.refuses(placement, 1 if placement.joined else 2)
        if reason is not None:
            by_reason.setdefault(reason, []).append(name)
    if not by_reason:
        return "no placement"
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in by_reason.items())


def _of_placement(name: str) -> dict[str, str]:
    placement: Placement = PLACEMENTS.build(name)
    facts = {"formula": placement.formula}
    facts["stream"] = (
        "normed after every addition" if placement.settles else "not normed after every addition"
    )
    ends = [
        word
        for word, stands in (
            ("on the embedding", placement.opening),
            ("after the last layer", placement.closing),
        )
        if stands
    ]
    facts["further_norms"] = " and ".join(ends) or "none"
    if placement.varies:
        facts["varies"] = "the norms differ from layer to layer"
    if placement.joined:
        facts["joined"] = "attention and MLP are one write"
    sublayers = 1 if placement.joined else 2
    refusing = [n for n, entry in CONNECTIONS.items() if entry.refuses(placement, sublayers)]
    facts["refused_by"] = ", ".join(refusing) or "no connection"
    return facts


# --- costs ---------------------------------------------------------------------------------------


def _place(layer: int = 1, sublayer: int = 1, branch: str = "attention") -> Place:
    return Place(
        width=WIDTH, heads=HEADS, depth=DEPTH, layer=layer, sublayer=sublayer, branch=branch
    )


def _of_write(name: str) -> str:
    counts = [
        _parameters(lambda p=place: CONNECTIONS.build(name, place=p))
        for place in (_place(1, 1), _place(1, 2), _place(6, 1), _place(6, 2), _place(12, 2, "mlp"))
    ]
    low, high = min(counts), max(counts)
    shown = _counted(high) if low == high else f"{low:,} to {_counted(high)}"
    stack = f"width {WIDTH}" if low == high else f"width {WIDTH} and {DEPTH} layers"
    return f"{shown} per write at {stack}" if high else "no parameters"


def _of_branch(kind: str, name: str) -> str:
    place = _place(1, 1 if kind == "attention" else 2, kind)
    count = _parameters(lambda: PARTS[kind].build(name, place=place, inside=lambda *_: None))
    return f"{_counted(count)} per layer at width {WIDTH}" if count else "no parameters"


def _of_norm(name: str) -> str:
    count = _parameters(lambda: PARTS["norm"].build(name, width=WIDTH))
    return f"{_counted(count)} per norm at width {WIDTH}" if count else "no parameters"


_COUNTED: dict[str, Callable[[str], str]] = {
    "connection": _of_write,
    "attention": lambda name: _of_branch("attention", name),
    "mlp": lambda name: _of_branch("mlp", name),
    "norm": _of_norm,
}


def _parameters(build: Callable[[], Any]) -> int:
    """Built without numbers where that can be done.

    A part of somebody else's may compute with its weights while it is built, which tensors
    without numbers cannot; it is built in full then, which takes memory but counts the same.
    """
    try:
        with torch.device("meta"):
            part = build()
    except (RuntimeError, NotImplementedError):
        with torch.random.fork_rng(devices=[]):
            part = build()
    return sum(p.numel() for p in part.parameters()) if isinstance(part, nn.Module) else 0


def _counted(count: int) -> str:
    return f"{count:,} parameter{'' if count == 1 else 's'}"
