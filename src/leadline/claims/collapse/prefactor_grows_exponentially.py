"""The prefactor (4 gamma beta / sqrt d)^{(3^L - 1)/2}, said to grow exponentially with depth.

Exponential growth adds a constant to the logarithm per layer: from layer 10 to 11 the logarithm
grows 11/10 times. The exponent is 1, 4, 13, 40, ...: the logarithm triples, so the prefactor is
double exponential, and where 4 gamma beta < sqrt d, which the note asks for, it falls.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

LAYER = 10


@claim(
    "prefactor-grows-exponentially",
    group="collapse",
    notes=("deep-dive",),
    title="The prefactor of the bound grows exponentially with depth",
    formula=r"c^{\frac{3^L - 1}{2}} \sim e^{a L}",
    plain="c^((3^L−1)/2) ~ e^(aL)",
    says="Of the two factors of the bound, the first is a constant prefactor that grows exponentially "
    "with the depth.",
    correction="Its logarithm is multiplied by 3 from layer to layer, so it is double exponential; and it "
    "falls, not grows, wherever $4 \\gamma \\beta < \\sqrt{d_{qk}}$.",
    why="The exponent $(3^L - 1)/2$ is 1, 4, 13, 40 for the first layers. From layer {layer:.0f} to the "
    "next the logarithm of the prefactor grows {ratio:.4f} times; exponential growth would give "
    "{exponential:.2f}. With a base of one half the prefactor of {layer:.0f} layers is 10 to the power "
    "{falling:.0f}.",
    checks=(
        Check(
            "ratio",
            "claim",
            "near",
            1.1,
            within=0.1,
            label="growth of the logarithm from layer 10 to 11",
            because="An exponential adds the same to the logarithm in each layer: 11/10.",
        ),
        Check(
            "tripling",
            "correction",
            "near",
            3.0,
            within=1e-3,
            label="growth of the logarithm from layer 10 to 11",
            because="(3^11 - 1)/(3^10 - 1) is 3 up to 4e-5.",
        ),
        Check(
            "exponent",
            "correction",
            "at most",
            1e-12,
            label="exponents of layers 1 to 4 against 1, 4, 13, 40",
            because="They are whole numbers, computed in float64.",
        ),
        Check(
            "falling",
            "correction",
            "at most",
            0.0,
            label="log₁₀ of the prefactor with base one half",
            because="Powers of a number below 1 are below 1.",
        ),
    ),
    seconds=0.01,
    seeded=False,
)
def measure(seed: int) -> Measured:
    """The tower of cubes from a residual of 1, whose logarithm is that of the prefactor."""
    import math

    from leadline.theory.rank_collapse.log import tower

    logs = [tower(1.0, 0.0, layer) for layer in range(LAYER + 2)]
    ratio = logs[LAYER + 1] / logs[LAYER]
    off = max(abs(found - right) for found, right in zip(logs[1:5], (1, 4, 13, 40), strict=True))
    return Measured(
        {
            "layer": float(LAYER),
            "exponential": (LAYER + 1) / LAYER,
            "ratio": ratio,
            "tripling": ratio,
            "exponent": off,
            "falling": tower(math.log10(0.5), 0.0, LAYER),
        }
    )
