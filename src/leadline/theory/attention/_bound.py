"""What a bound is: a statement about attention matrices, its assumptions, and its value.

A bound is a class with one decorator in a file of its own:

    @BOUNDS.register("sqrt-queries")
    class SqrtQueries(Bound): ...

It is asked with `AttentionFacts`, the numbers of one head on one shape of input. `conditions`
says of every assumption whether it holds there and why not; `value` computes the bound, also
where an assumption fails (what a theorem claims where it does not apply can be shown to be
wrong), and returns None where a number that it needs is not known.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from leadline.catalog import Catalog
from leadline.theory._condition import Condition

__all__ = ["BOUNDS", "AttentionFacts", "Bound", "Mask", "Positions", "Side"]

Mask = Literal["none", "causal", "other"]
Positions = Literal["none", "rotary", "bias", "unknown"]
Side = Literal["upper", "lower"]


@dataclass(frozen=True, slots=True)
class AttentionFacts:
    """The numbers of one head on inputs of one shape. None: not known, or not there.

    The logits are l_ij = cap(scaling <q_i, k_j>) + bias_ij with q = W_Q' z + b_Q, k = W_K' z + b_K
    (turned by rotary positions, or normed by a QK-norm), where z is what enters the projections:
    z = gain * (a vector of norm at most sqrt(width)) + shift where a norm stands before them.
    """

    queries: int
    keys: int
    allowed: tuple[int, ...] = ()
    """How many keys each query may see, one number per query; empty: all of them."""
    mask: Mask = "none"
    """none: every query sees every key. causal: query i sees keys 1..i, exactly. other: else."""
    stochastic: bool = True
    """Whether every row sums to one; with sink logits rows sum to less."""
    positions: Positions = "unknown"
    bias_range: float = 0.0
    """The largest range, over one row, of an additive position bias on the logits."""
    scaling: float | None = None
    soft_cap: float | None = None
    """Logits are cap * tanh(logit / cap); None: no cap."""
    head_width: int | None = None
    width: int | None = None
    """How many features enter the projections: d."""
    gain: float | None = None
    """Gamma: the largest |weight| of the norm before the projections; None: there is no norm."""
    shift: float | None = None
    """|beta|: the norm of the norm's bias; 0 where it has none, None where there is no norm."""
    query_weight: float | None = None
    """sigma_Q: the largest singular value of this head's W_Q."""
    key_weight: float | None = None
    query_bias: float | None = None
    """|b_Q| of this head; 0 where there is none."""
    key_bias: float | None = None
    query_radius: float | None = None
    """The largest norm that a QK-norm lets a query have; None without QK-norm."""
    key_radius: float | None = None
    column_sum: float | None = None
    """The largest measured column sum."""
    logit_span: float | None = None
    """The largest measured range of the allowed logits of one row, as they enter the softmax."""
    shared_input: bool = True
    """Whether queries and keys are read from the same normed vectors; not in cross-attention."""

    substochastic: bool = True
    """Whether no weight is negative and no row sums to more than one, as a softmax makes them."""

    def row_counts(self) -> Sequence[int]:
        """How many keys each query may see, whatever the mask."""
        if self.allowed:
            return self.allowed
        if self.mask == "causal":
            return range(1, self.queries + 1)
        return [self.keys] * self.queries


class Bound(ABC):
    """Bounds a quantity of an attention matrix; its docstring gives statement and proof sketch."""

    title: str
    """In a few words, for a table: "square root of the largest column sum"."""
    statement: str
    """The formula, in one line."""
    source: str
    side: Side = "upper"
    quantity: str = "attention.spectral_norm"
    """What it bounds."""

    @abstractmethod
    def conditions(self, facts: AttentionFacts) -> list[Condition]:
        """Say of every assumption whether it holds."""

    @abstractmethod
    def value(self, facts: AttentionFacts) -> float | None:
        """Return the bound; infinity where it is void, None where a number is missing."""

    def applies(self, facts: AttentionFacts) -> bool:
        """Whether every assumption holds and every number is known."""
        value = self.value(facts)
        is_known = value is not None and not math.isnan(value)
        return is_known and all(condition.holds for condition in self.conditions(facts))


BOUNDS: Catalog[type[Bound]] = Catalog(
    "bound", package="leadline.theory.attention", group="leadline.bounds"
)
