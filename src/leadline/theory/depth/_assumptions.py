"""The assumptions that laws of depth share. One that cannot be checked has no `because`.

A norm divides by sqrt(m + eps), m the mean square that it reads, so the mean square behind it is
m / (m + eps) and not 1. Attention and a ReLU write in proportion to it. Laws that say 1 are off by
at most 5 % where eps <= m / 20 at every site: much less than their bands are wide, and GPT-2's own
eps of 1e-5 passes beside its own embeddings (4e-4 in mean square without positions, 8e-4 with them).
"""

from __future__ import annotations

import math

from leadline.theory._condition import Condition
from leadline.theory.depth._facts import DepthFacts
from leadline.theory.depth._writes import ACTIVATIONS

__all__ = [
    "NORMS",
    "SMALL_EPS",
    "as_drawn",
    "called",
    "plain_branches",
    "plain_sum",
    "scaled_by_writes",
    "two_writes",
    "unit_norm",
]

NORMS = ("layernorm", "rmsnorm")
"""Norms whose output has mean square 1 before training, but for their eps."""
SMALL_EPS = 0.05
"""The largest share of eps in a mean square that is normed for which the output counts as 1."""
_TOLERANCE = 1e-6
"""Relative: what a scale computed from the depth may be off by."""


def called(assumption: str, name: str | None, names: tuple[str, ...], what: str) -> Condition:
    """Check that the name of a part is one of these names."""
    if name is None:
        return Condition(assumption, False)
    return Condition(assumption, name in names, "" if name in names else f"{what} is {name}")


def as_drawn(facts: DepthFacts) -> Condition:
    """Check that nothing was trained."""
    because = "the weights were trained" if facts.initial is False else ""
    return Condition("the weights are as they were drawn", facts.initial is True, because)


def unit_norm(facts: DepthFacts) -> list[Condition]:
    """Check that the norm divides by the size of the token, and by hardly anything else."""
    condition = called("the norm is layernorm or rmsnorm", facts.norm, NORMS, "the norm")
    return [condition] if condition.because else [condition, _small_eps(facts)]


def _small_eps(facts: DepthFacts) -> Condition:
    assumption = "eps is small against the mean square that is normed"
    finite = [value for value in facts.mean_square if math.isfinite(value)]
    if facts.norm_eps is None or not finite:
        return Condition(assumption, False)
    holds = facts.norm_eps <= SMALL_EPS * min(finite)
    reason = f"eps is {facts.norm_eps:g}, and the stream has a mean square of {min(finite):.2g}"
    return Condition(assumption, holds, "" if holds else reason)


def two_writes(facts: DepthFacts) -> Condition:
    """Check that a block is attention, then an MLP."""
    assumption = "a block is attention, then an MLP, each with its own write"
    if not facts.branches:
        return Condition(assumption, False)
    holds = facts.branches == ("attention", "mlp")
    reason = f"a block writes {' and '.join(facts.branches)}"
    return Condition(assumption, holds, "" if holds else reason)


def plain_branches(facts: DepthFacts) -> list[Condition]:
    """Check that attention and MLP are those whose mean squares are known."""
    activations = tuple(ACTIVATIONS)
    return [
        two_writes(facts),
        called("attention is plain multi-head attention", facts.attention, ("multihead",),
               "attention"),
        called(f"the MLP is plain, with {', '.join(activations)}", facts.mlp, activations, "the MLP"),
    ]  # fmt: skip


def plain_sum(facts: DepthFacts) -> Condition:
    """Check that a write is x + u."""
    assumption = "every write is x + u"
    if facts.keep is None or facts.gain is None:
        return Condition(assumption, False)
    holds = facts.keep == 1.0 and facts.gain == 1.0
    reason = f"a write keeps {facts.keep:g} of the stream and adds {facts.gain:g} of the update"
    return Condition(assumption, holds, "" if holds else reason)


def scaled_by_writes(facts: DepthFacts) -> Condition:
    """Check that a write is x + u / sqrt(2 L), through the connection."""
    assumption = "every write is x + u / sqrt(2 L)"
    if facts.keep is None or facts.gain is None:
        return Condition(assumption, False)
    gain = (2.0 * facts.depth) ** -0.5
    holds = facts.keep == 1.0 and math.isclose(facts.gain, gain, rel_tol=_TOLERANCE)
    reason = f"a write keeps {facts.keep:g} of the stream and adds {facts.gain:g} of the update"
    return Condition(assumption, holds, "" if holds else reason)
