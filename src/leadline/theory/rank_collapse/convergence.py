"""When the bounds on rank collapse say that tokens become equal.

The published bound is r_L <= r (c r^2)^((3^L - 1)/2) with c = 4 gamma beta H lambda / sqrt(d_qk).
The long note concludes convergence from c < 1 alone. That is false: two tokens of width one,
+a and -a, become +-w a tanh(tau a^2) with tau = scaling W_QK, and tau = 0.3, w = 1.05, a = 4 grows
although c = 0.89. The bound falls where c r^2 < 1, and only there: c < 1 suffices where r <= 1, and
r < 1 suffices where c <= 1.
"""

from __future__ import annotations

import math
from typing import Literal

from leadline.theory.rank_collapse._facts import StackFacts
from leadline.theory.rank_collapse.bound import measured_residuals
from leadline.theory.rank_collapse.collapse_proved import CollapseProved
from leadline.theory.rank_collapse.collapse_published import published_factor

__all__ = ["converges", "converges_as_written"]


def converges_as_written(facts: StackFacts) -> bool | None:
    """Whether 4 gamma beta H lambda < sqrt(d_qk), the note's condition; None: a number is missing.

    It is false that residuals then vanish: the docstring of this module has a counterexample.
    """
    factor = published_factor(facts)
    return None if factor is None else factor < 0.0


def converges(
    facts: StackFacts, *, constant: Literal["published", "proved"] = "published"
) -> bool | None:
    """Whether c r^2 < 1, r the composite residual at the entry; None where a number is missing.

    Then every layer's residual is below the one before it, as far as c bounds all layers, and
    r_L <= r (c r^2)^((3^L - 1)/2) falls double exponentially. `published`: c = 4 gamma beta H
    lambda / sqrt(d_qk), sufficient with one head. `proved`: c is the largest factor of
    `collapse-proved` over the layers, sufficient always; with one head it is the smaller one.
    """
    measured = measured_residuals(facts, "composite")
    if constant == "published":
        factor = published_factor(facts)
    else:
        factors = CollapseProved().factors(facts)
        is_unknown = not factors or any(math.isnan(one) for one in factors)
        factor = None if is_unknown else max(factors)
    if factor is None or not measured:
        return None
    if -math.inf in (factor, measured[0]):
        return True
    return factor + 2.0 * measured[0] < 0.0
