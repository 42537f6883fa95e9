"""Bounds that know one number of the logits: D, the largest range within a row.

Each family (no mask, causal, any mask) comes twice. From the weights, D is Delta of
`logit_span`: a prediction. From the measurement, D is the measured range: a bound that
stands between theory and measurement and says how much of a gap is due to Delta.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

from leadline.theory._condition import Condition
from leadline.theory.attention._assumptions import rows_at_most_one
from leadline.theory.attention._bound import AttentionFacts, Bound
from leadline.theory.attention.logit_span import (
    measured_span,
    measured_span_conditions,
    weight_span,
    weight_span_conditions,
)

__all__ = ["SpanBound"]


class SpanBound(Bound):
    """A bound that is a function of the mask and of the span of the logits."""

    span_from: Literal["weights", "measurement"] = "weights"

    @abstractmethod
    def mask_conditions(self, facts: AttentionFacts) -> list[Condition]:
        """Say of every assumption on the mask whether it holds."""

    @abstractmethod
    def at_span(self, facts: AttentionFacts, span: float) -> float:
        """Return the bound for logits that differ by at most `span` within a row."""

    def span(self, facts: AttentionFacts) -> float | None:
        """Return the span that this bound goes by; None where it is not known."""
        return weight_span(facts) if self.span_from == "weights" else measured_span(facts)

    def conditions(self, facts: AttentionFacts) -> list[Condition]:
        by_weights = self.span_from == "weights"
        span = weight_span_conditions if by_weights else measured_span_conditions
        return [*self.mask_conditions(facts), rows_at_most_one(facts), *span(facts)]

    def value(self, facts: AttentionFacts) -> float | None:
        span = self.span(facts)
        return None if span is None else self.at_span(facts, span)
