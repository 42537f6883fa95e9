"""The bound is read as a description of what happens: the residual falls to zero as 3^L says.

The exponent is right: log-residuals triple. That is the part "claim". A reader also takes the size
from the bound. Its prefactor is loose, and the looseness is raised to the power (3^L - 1)/2: for
ordinary weights the bound explodes while the residual vanishes.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

DEPTH = 10


@claim(
    "bound-tells-the-residual",
    group="collapse",
    notes=("deep-dive",),
    title="The bound describes how the residual is destroyed by cubing",
    formula=r"\| \mathrm{res}(X^L) \| \approx c^{\frac{3^L - 1}{2}} \| \mathrm{res}(X) \|^{3^L}",
    plain="‖res(X^L)‖ ≈ c^((3^L−1)/2) ‖res(X)‖^(3^L)",
    says="The right side of the bound explains the collapse: a prefactor, and the residual cubed "
    "L times over.",
    correction="The exponent $3^L$ is right, the size is not: the bound is loose by a factor that is "
    "itself raised to $(3^L - 1)/2$. The size follows, layer by layer, from $R' = \\frac{s}{n} \\sum_h R "
    "W_{QK,h} R^T R W_h$.",
    why="For random weights of ordinary size the residual after {depth:.0f} layers is 10 to the power "
    "{truth:.0f}; the bound says 10 to the power {bound:.0f}. Both triple their logarithm per layer (the "
    "truth {ratio:.4f} times), but one goes down and the other up. The cubic law is off by {law} in the "
    "logarithm in the last layer.",
    checks=(
        Check(
            "ratio",
            "claim",
            "near",
            3.0,
            within=0.01,
            label="ratio of log residuals in the last layer",
            because="The cubic law gives 3 plus log c over log r, which is below 0.01 here.",
        ),
        Check(
            "size",
            "reach",
            "near",
            1.0,
            within=0.5,
            label="log₁₀ of the bound over log₁₀ of the residual",
            because="A description of the size gets at least half of the exponent right.",
        ),
        Check(
            "law",
            "correction",
            "at most",
            1e-6,
            label="log₁₀ of the cubic law against the residual",
            because="The law is the leading term, and the next is below rounding at this depth.",
            log=True,
        ),
    ),
    seconds=0.3,
    source="Dong, Cordonnier, Loukas 2021, arXiv 2103.03404",
)
def measure(seed: int) -> Measured:
    """Follow random attention with the facts of the theorems."""
    from leadline.claims.collapse._stacks import drawn_layers, drawn_tokens
    from leadline.instruments.collapse.measure import collapse_weights
    from leadline.theory.rank_collapse import COLLAPSE_BOUNDS

    found = collapse_weights(drawn_tokens(seed), drawn_layers(seed, depth=DEPTH), facts=True)
    facts = found.facts
    assert facts is not None
    bound = COLLAPSE_BOUNDS.get("collapse-published")().log10_values(facts)
    law = COLLAPSE_BOUNDS.get("collapse-cubic-law")().log10_values(facts)
    assert bound is not None and law is not None
    sites = tuple(float(site) for site in range(6))
    return Measured(
        {
            "depth": float(DEPTH),
            "ratio": float(found.log_ratio[-1]),
            "truth": facts.log10_composite[-1],
            "bound": bound[-1],
            "size": bound[-1] / facts.log10_composite[-1],
            "law": abs(law[-1] - float(found.log10_residual[-1])),
        },
        Picture(
            "layer",
            "log₁₀ of the composite residual",
            {
                "measured": (sites, facts.log10_composite[:6]),
                "the bound": (sites, bound[:6]),
            },
            faint=("the bound",),
        ),
    )
