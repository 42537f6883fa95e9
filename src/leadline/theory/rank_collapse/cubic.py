"""What the cubic upper bounds share: one layer multiplies r^3 by a number of its weights.

    r' <= c r^3,   c = constant * gamma * lambda * scaling * (sum_h |W_QK,h|_1) * w
    w = sqrt(max_h |W_h|_1  max_h |W_h|_inf)

With one head w = |W|_{1,inf}; it is never above max_h max(|W_h|_1, |W_h|_inf). The constant and
gamma depend on the statement: see `collapse_proved`, which has the proof.
"""

from __future__ import annotations

import math
from abc import abstractmethod

from leadline.theory._condition import Condition
from leadline.theory.rank_collapse._assumptions import pure_attention
from leadline.theory.rank_collapse._facts import LayerFacts, StackFacts
from leadline.theory.rank_collapse.bound import CollapseBound, measured_residuals
from leadline.theory.rank_collapse.log import log10, product

__all__ = ["CubicBound", "centring", "largest_gamma", "layer_weight"]


class CubicBound(CollapseBound):
    """An upper bound r' <= c r^3, layer by layer from the residual at the entry."""

    @abstractmethod
    def log10_gamma(self, facts: StackFacts, layer: LayerFacts) -> float:
        """Return log10 of the constant times gamma; NaN where it is not known."""

    def conditions(self, facts: StackFacts) -> list[Condition]:
        return pure_attention(facts)

    def factors(self, facts: StackFacts) -> list[float]:
        """Return log10 c of every layer; NaN where a number is missing."""
        return [
            product(self.log10_gamma(facts, layer), layer_weight(layer)) for layer in facts.layers
        ]

    def log10_values(self, facts: StackFacts) -> tuple[float, ...] | None:
        measured = measured_residuals(facts, self.measure)
        factors = self.factors(facts)
        if not measured or any(math.isnan(factor) for factor in factors):
            return None
        values = [measured[0]]
        for factor in factors:
            values.append(product(factor, 3.0 * values[-1]))
        return tuple(values)


def layer_weight(layer: LayerFacts) -> float:
    """Return log10 of lambda * scaling * sum_h |W_QK,h|_1 * w; NaN where a number is missing."""
    heads = len(layer.query_key)
    is_complete = heads and heads == len(layer.value_output_1) == len(layer.value_output_inf)
    if not is_complete or layer.scaling is None or layer.lipschitz is None:
        return math.nan
    numbers = (*layer.query_key, *layer.value_output_1, *layer.value_output_inf)
    if any(math.isnan(number) for number in numbers):
        return math.nan
    value_output = 0.5 * log10(max(layer.value_output_1)) + 0.5 * log10(max(layer.value_output_inf))
    return product(
        log10(layer.lipschitz),
        log10(abs(layer.scaling)),
        log10(sum(layer.query_key)),
        value_output,
    )


def centring(tokens: int) -> float:
    """Return log10 of 2 (1 - 1/n), the 1-norm and the inf-norm of I - 11'/n."""
    return log10(2.0 * (1.0 - 1.0 / max(tokens, 1)))


def largest_gamma(tokens: int) -> float:
    """Return log10 of sqrt(n) / 2, which gamma never exceeds where R is centred at the mean."""
    return log10(0.5 * math.sqrt(tokens))
