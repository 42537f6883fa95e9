"""The lower bound of the long note for skip connections, exactly as written there: it is false."""

from __future__ import annotations

import math

from leadline.theory._condition import Condition, assume
from leadline.theory.rank_collapse._facts import StackFacts
from leadline.theory.rank_collapse.bound import COLLAPSE_BOUNDS
from leadline.theory.rank_collapse.skip_keeps_residual import SkipKeepsResidual

ROUNDING = 1e-6
"""Up to which |<X, U>| / (|X| |U|) an update counts as orthogonal to the stream."""


@COLLAPSE_BOUNDS.register("skip-as-written")
class SkipAsWritten(SkipKeepsResidual):
    """|res X^L|_F >= |res X|_F where the outputs of the layers are orthogonal to their inputs.

    Orthogonality as <X, U> = 0 in the Frobenius product. The statement is false, and so it is
    shown and never counted: <X, U> = <res X, res U> + n <x, u> with x and u the mean tokens, so an
    update may take the residual away and make up for it in the means. X = (2, 0)' and U = (0, 2)'
    have <X, U> = 0, and X + U = (2, 2)' has no residual left. What is true is
    `skip-keeps-residual`.
    """

    title = "the note's bound with a skip, false"
    statement = "|res X^L|_F >= |res X|_F if ⟨X, U⟩ = 0 at every write (false)"
    source = "Deep Dive into Transformer Architecture, section 3"

    def direction(self, facts: StackFacts) -> list[Condition]:
        overlaps = [layer.overlap for layer in facts.layers]
        numbers = [one for one in overlaps if one is not None and not math.isnan(one)]
        largest = max(numbers, default=0.0)
        otherwise = (
            f"updates are not orthogonal to the stream, cosine {largest:.3g}"
            if len(numbers) == len(overlaps)
            else "the angle between update and stream was not measured at every write"
        )
        orthogonal = len(numbers) == len(overlaps) and largest <= ROUNDING
        return [
            assume("updates are orthogonal to the stream", orthogonal, otherwise),
            assume(
                "the statement is true",
                False,
                "the statement is false: an orthogonal update may take the residual away and "
                "make up for it in the mean token",
            ),
        ]
