"""Derivatives near 0: without shortcut the product dies, with it it is 1.

The note sets every F' to about 0: prod F' is then about 0, prod (1 + 0) = 1 and the gradient arrives
whole. For F' = 0 both are exact (the claim). A reader carries it to derivatives that are small: a
tenth in every layer, which are the factors 0.9 and 1.1 that the same note calls vanishing and
exploding. (1 + e)^L stays within a factor of e = 2.718 of 1 as long as |e| L <= 1:

    (1 + e)^L <= exp(e L),        (1 - e)^L >= (1 - 1/L)^L >= 1/4     for e <= 1/L and L >= 2.
"""

from __future__ import annotations

import math

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

DEPTH = 100
SHOWN = 1e-12
"""Powers below this are left out of the picture."""


@claim(
    "one-plus-e-to-the-depth",
    group="algebra",
    notes=("shortcuts",),
    title="With derivatives near 0 the shortcut keeps the whole gradient",
    formula=r"F_i' \approx 0: \quad \prod_i F_i' \approx 0, \qquad \prod_i (1 + F_i') \approx 1",
    plain="F' ≈ 0: ∏ F' ≈ 0, but ∏ (1 + F') ≈ 1",
    says="If the derivative of every branch is about zero, the gradient without shortcut dies, and "
    "with shortcut it arrives in full, because a product of ones is one.",
    correction="It arrives about whole as long as depth times derivative is small: $(1 + e)^L$ stays "
    "between 1/4 and 2.72 for $|e| \\le 1/L$ from 2 layers on. A derivative that is small and does not shrink with "
    "depth compounds.",
    why="With derivatives of exactly 0 a hundred layers leave {none} of the gradient without shortcut and "
    "{whole} with it. With derivatives of 0.1, which look small, they leave {grown} if all are positive "
    "and {shrunk} if all are negative: these are the factors 1.1 and 0.9 again. With 1/100 it is "
    "{hundred_up:.2f} and {hundred_down:.2f}.",
    checks=(
        Check(
            "none", "claim", "at most", 0.0,
            label="product of 100 derivatives of 0",
            because="A product with a factor 0 is 0.",
        ),
        Check(
            "whole", "claim", "near", 1.0, within=1e-12,
            label="product of 100 factors 1 + 0",
            because="A product of ones is exactly 1.",
        ),
        Check(
            "grown", "reach", "at most", 10.0,
            label="1.1 to the power 100",
            because="About 1 is read as within a factor of ten.",
            log=True,
        ),
        Check(
            "shrunk", "reach", "at least", 0.1,
            label="0.9 to the power 100",
            because="About 1 is read as within a factor of ten.",
            log=True,
        ),
        Check(
            "even_up", "correction", "at most", math.e,
            label="largest (1 + 1/L)^L",
            because="1 + t is at most exp(t).",
        ),
        Check(
            "even_down", "correction", "at least", 0.25 - 1e-12,
            label="smallest (1 - 1/L)^L from 2 layers on",
            because="(1 - 1/L)^L grows with L and is 1/4 at L = 2, which rounding may miss by 1e-12.",
        ),
    ),
    seconds=0.01,
    seeded=False,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Powers by multiplication, and the band of a product of residual factors."""
    from leadline.theory.residual_products import product_band, product_bands

    def power(factor: float) -> float:
        found = 1.0
        for _ in range(DEPTH):
            found *= factor
        return found

    even = [product_band([1.0 / depth] * depth) for depth in range(2, DEPTH + 1)]
    lines: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {}
    counted = tuple(float(at) for at in range(DEPTH + 1))
    for e in (0.01, 0.1):
        bands = product_bands([e] * DEPTH)
        lines[f"(1 + {e:g})^L"] = (counted, tuple(math.exp(one.log_upper) for one in bands))
        lines[f"(1 - {e:g})^L"] = (counted, tuple(math.exp(one.log_lower) for one in bands))
        alone = [e**depth for depth in range(DEPTH + 1) if e**depth >= SHOWN]
        lines[f"{e:g}^L"] = (counted[: len(alone)], tuple(alone))
    return Measured(
        {
            "none": power(0.0),
            "whole": power(1.0),
            "grown": power(1.1),
            "shrunk": power(0.9),
            "hundred_up": power(1.0 + 1.0 / DEPTH),
            "hundred_down": power(1.0 - 1.0 / DEPTH),
            "even_up": max(math.exp(one.log_upper) for one in even),
            "even_down": min(math.exp(one.log_lower) for one in even),
        },
        Picture("layers L", "product", lines, y_log=True, faint=("0.01^L", "0.1^L")),
    )
