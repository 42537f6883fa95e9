"""The lower bound that a skip connection gives where updates do not point against the residual."""

from __future__ import annotations

import math

from leadline.theory._condition import Condition, assume
from leadline.theory.rank_collapse._assumptions import keeps_stream
from leadline.theory.rank_collapse._facts import StackFacts
from leadline.theory.rank_collapse.bound import COLLAPSE_BOUNDS, CollapseBound, measured_residuals


@COLLAPSE_BOUNDS.register("skip-keeps-residual")
class SkipKeepsResidual(CollapseBound):
    """|res X^L|_F >= |res X|_F where <res X, res U> >= 0 at every write X -> X + U.

    Assumptions: every write keeps the whole stream, and the residual of what is written does not
    point against the residual of the stream (Frobenius product). Proof: res is linear, so
    |res(X + U)|^2 = |res X|^2 + 2 <res X, res U> + |res U|^2 >= |res X|^2, write by write. If
    U X' = 0 (every token of U is orthogonal to every token of X) the product is zero, and with
    W_V = 0 both sides are equal. Nothing is said of the relative residual |res X|_F / |X|_F, which
    may vanish all the same.
    """

    title = "the skip keeps the residual"
    statement = "|res X^L|_F >= |res X|_F if ⟨res X, res U⟩ >= 0 at every write"
    source = (
        "Deep Dive into Transformer Architecture, section 3, with the residuals in the condition"
    )
    side = "lower"
    measure = "frobenius"

    def conditions(self, facts: StackFacts) -> list[Condition]:
        return [keeps_stream(facts), *self.direction(facts)]

    def direction(self, facts: StackFacts) -> list[Condition]:
        """Check what is assumed of the updates."""
        alignments = [layer.alignment for layer in facts.layers]
        numbers = [one for one in alignments if one is not None and not math.isnan(one)]
        if len(numbers) < len(alignments):
            otherwise = "the angle between update and residual was not measured at every write"
        else:
            otherwise = (
                f"an update points against the residual, cosine {min(numbers, default=0.0):.3g}"
            )
        holds = len(numbers) == len(alignments) and min(numbers, default=0.0) >= 0.0
        return [assume("no update points against the residual", holds, otherwise)]

    def log10_values(self, facts: StackFacts) -> tuple[float, ...] | None:
        measured = measured_residuals(facts, self.measure)
        return (measured[0],) * (facts.depth + 1) if measured else None
