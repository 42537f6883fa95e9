"""|F| small, so |I + F| near 1, so the product neither explodes nor vanishes: how small is small?

The first step is right: | |I + F| - 1 | <= |F|. The second needs a size. The claim is measured where it
is true whatever the branches do, with |F_l| = 1/L, so that sum |F_l| = 1. Its reach is a size
that looks small and does not shrink with depth: |F_l| = 0.1 in the 96 layers that the note names.
The right statement is the band of `theory.residual_products`,

    prod (1 - |F_l|) <= sigma_min(P) <= sigma_max(P) <= prod (1 + |F_l|) <= exp(sum |F_l|)

whose ends F_l = -|F_l| I and F_l = |F_l| I attain; random branches stay far inside.
"""

from __future__ import annotations

import math

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

LAYERS, SIZE, SMALL = 96, 16, 0.1


@claim(
    "small-branches-keep-products",
    group="algebra",
    notes=("shortcuts",),
    title="Small branches make products that neither explode nor vanish",
    formula=r"\|F_l\| \ll 1 \;\Rightarrow\; \|I + F_l\| \approx 1 \;\Rightarrow\; "
    r"\prod_l (I + F_l) = O(1)",
    plain="‖F‖ small ⇒ ‖I + F‖ ≈ 1 ⇒ ∏ (I + F_l) stays of order 1",
    says="If the norm of F is small, the norm of I + F is near 1, so a product of many such factors "
    "neither explodes nor vanishes.",
    correction="It stays of order one where the SUM of the norms does: $\\prod_l (1 - \\|F_l\\|) \\le "
    "\\sigma_{\\min} \\le \\sigma_{\\max} \\le \\prod_l (1 + \\|F_l\\|) \\le \\exp \\sum_l \\|F_l\\|$. That "
    "each single norm is small is not enough.",
    why="With branches of norm 1/96 in 96 layers every product stays between {quiet_low} and "
    "{quiet_high}, even if all branches pull in one direction. With a norm of 0.1 branches that agree "
    "make it {grown} or {shrunk}: ten per cent a layer, compounded. Branches in random directions "
    "partly cancel: there the singular values stay between {random_low} and {random_high}.",
    checks=(
        Check(
            "near_one", "claim", "at most", 1.0 + 1e-9,
            label="| ‖I + F‖ - 1 | over ‖F‖",
            because="The triangle inequality; the difference of two numbers near 1 is known to 1e-15.",
        ),
        Check(
            "quiet_high", "claim", "at most", 10.0,
            label="largest gain, ‖F_l‖ = 1/96",
            because="Of order one is read as within a factor of ten.",
            log=True,
        ),
        Check(
            "quiet_low", "claim", "at least", 0.1,
            label="smallest gain, ‖F_l‖ = 1/96",
            because="Of order one is read as within a factor of ten.",
            log=True,
        ),
        Check(
            "grown", "reach", "at most", 10.0,
            label="largest gain, ‖F_l‖ = 0.1",
            because="Of order one is read as within a factor of ten.",
            log=True,
        ),
        Check(
            "shrunk", "reach", "at least", 0.1,
            label="smallest gain, ‖F_l‖ = 0.1",
            because="Of order one is read as within a factor of ten.",
            log=True,
        ),
        Check(
            "above", "correction", "at most", 1.0 + 1e-9,
            label="largest singular value over its bound",
            because="A theorem with equality for F = |F| I; 96 factors round by less than 1e-13.",
        ),
        Check(
            "below", "correction", "at least", 1.0 - 1e-9,
            label="smallest singular value over its bound",
            because="A theorem with equality for F = -|F| I; 96 factors round by less than 1e-13.",
        ),
        Check(
            "attained", "correction", "near", 1.0, within=1e-9,
            label="the worst case over the bound",
            because="Branches that agree attain both ends of the band.",
        ),
    ),
    seconds=0.1,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Multiply random branches and branches that agree, beside the band of the theorem."""
    from leadline.claims.algebra._matrices import Matrix, norm, of_norm, products, singular
    from leadline.theory.residual_products import product_bands

    rng = np.random.default_rng([seed, 105])
    eye = np.eye(SIZE)

    def ends(size: float, draw: str) -> tuple[list[float], list[float]]:
        """Largest and smallest singular values after 0, 1, ... layers."""
        branches: dict[str, list[Matrix]] = {
            "random": [of_norm(rng, SIZE, size) for _ in range(LAYERS)],
            "up": [size * eye] * LAYERS,
            "down": [-size * eye] * LAYERS,
        }
        values = [singular(one) for one in products([eye + one for one in branches[draw]])]
        return [float(one[0]) for one in values], [float(one[-1]) for one in values]

    singles = [of_norm(rng, SIZE, SMALL) for _ in range(LAYERS)]
    found = {
        (size, draw): ends(size, draw)
        for size in (SMALL, 1.0 / LAYERS)
        for draw in ("random", "up", "down")
    }
    bands = {size: product_bands([size] * LAYERS) for size in (SMALL, 1.0 / LAYERS)}
    above = max(
        high / math.exp(band.log_upper)
        for (size, _), (highs, _) in found.items()
        for high, band in zip(highs, bands[size], strict=True)
    )
    below = min(
        low / math.exp(band.log_lower)
        for (size, _), (_, lows) in found.items()
        for low, band in zip(lows, bands[size], strict=True)
    )
    quiet, loud = 1.0 / LAYERS, bands[SMALL]
    counted = tuple(float(at) for at in range(LAYERS + 1))
    lines = {
        "largest, random": found[SMALL, "random"][0],
        "smallest, random": found[SMALL, "random"][1],
        "branches agree": found[SMALL, "up"][0],
        "branches undo the skip": found[SMALL, "down"][1],
        "upper bound": [math.exp(band.log_upper) for band in loud],
        "lower bound": [math.exp(band.log_lower) for band in loud],
    }
    return Measured(
        {
            "near_one": max(abs(norm(eye + one) - 1.0) / SMALL for one in singles),
            "quiet_high": max(found[quiet, draw][0][-1] for draw in ("random", "up", "down")),
            "quiet_low": min(found[quiet, draw][1][-1] for draw in ("random", "up", "down")),
            "grown": found[SMALL, "up"][0][-1],
            "shrunk": found[SMALL, "down"][1][-1],
            "random_high": found[SMALL, "random"][0][-1],
            "random_low": found[SMALL, "random"][1][-1],
            "above": above,
            "below": below,
            "attained": math.sqrt(
                found[SMALL, "up"][0][-1] / math.exp(loud[-1].log_upper)
                * found[SMALL, "down"][1][-1] / math.exp(loud[-1].log_lower)
            ),
        },
        Picture(
            "layers",
            "singular values of the product",
            {name: (counted, tuple(values)) for name, values in lines.items()},
            y_log=True,
            faint=("upper bound", "lower bound"),
        ),
    )  # fmt: skip
