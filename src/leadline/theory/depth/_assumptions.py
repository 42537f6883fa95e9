"""The assumptions that laws of depth share. What is not known is said without a `because`."""

from __future__ import annotations

import math

from leadline.theory._condition import Condition
from leadline.theory.depth._facts import DepthFacts
from leadline.theory.depth._writes import ACTIVATIONS

__all__ = [
    "NORMS",
    "as_drawn",
    "called",
    "plain_branches",
    "plain_sum",
    "scaled_by_writes",
    "two_writes",
    "unit_norm",
]

NORMS = ("layernorm", "rmsnorm")
"""Norms whose output has mean square 1 before training."""
_TOLERANCE = 1e-6


def called(assumption: str, found: str | None, wanted: tuple[str, ...], what: str) -> Condition:
    """Check that a part is one of those wanted."""
    if found is None:
        return Condition(assumption, False)
    return Condition(assumption, found in wanted, "" if found in wanted else f"{what} is {found}")


def as_drawn(facts: DepthFacts) -> Condition:
    """Check that nothing was trained."""
    because = "the weights were trained" if facts.initial is False else ""
    return Condition("the weights are as they were drawn", facts.initial is True, because)


def unit_norm(facts: DepthFacts) -> Condition:
    """Check that the norm divides by the size of the token."""
    return called("the norm is layernorm or rmsnorm", facts.norm, NORMS, "the norm")


def two_writes(facts: DepthFacts) -> Condition:
    """Check that a block is attention, then an MLP."""
    assumption = "a block is attention, then an MLP, each with its own write"
    if not facts.branches:
        return Condition(assumption, False)
    holds = facts.branches == ("attention", "mlp")
    found = f"a block writes {' and '.join(facts.branches)}"
    return Condition(assumption, holds, "" if holds else found)


def plain_branches(facts: DepthFacts) -> list[Condition]:
    """Check that attention and MLP are those whose mean squares are known."""
    known = tuple(ACTIVATIONS)
    return [
        two_writes(facts),
        called("attention is plain multi-head attention", facts.attention, ("multihead",),
               "attention"),
        called(f"the MLP is plain, with {', '.join(known)}", facts.mlp, known, "the MLP"),
    ]  # fmt: skip


def plain_sum(facts: DepthFacts) -> Condition:
    """Check that a write is x + u."""
    assumption = "every write is x + u"
    if facts.keep is None or facts.gain is None:
        return Condition(assumption, False)
    holds = facts.keep == 1.0 and facts.gain == 1.0
    found = f"a write keeps {facts.keep:g} of the stream and adds {facts.gain:g} of the update"
    return Condition(assumption, holds, "" if holds else found)


def scaled_by_writes(facts: DepthFacts) -> Condition:
    """Check that a write is x + u / sqrt(2 L), through the connection."""
    assumption = "every write is x + u / sqrt(2 L)"
    if facts.keep is None or facts.gain is None:
        return Condition(assumption, False)
    wanted = (2.0 * facts.depth) ** -0.5
    holds = facts.keep == 1.0 and math.isclose(facts.gain, wanted, rel_tol=_TOLERANCE)
    found = f"a write keeps {facts.keep:g} of the stream and adds {facts.gain:g} of the update"
    return Condition(assumption, holds, "" if holds else found)
