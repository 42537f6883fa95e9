"""The note: if only the first residual is below 1, the output's residual drops to zero almost at once.

Read as it stands: |res X| < 1 suffices. The bound falls where c r^2 < 1, and c may be large. Tokens
+a and -a with a = 0.5 become w a tanh(tau a^2); with tau = 10 and w = 2 the residual grows for ever.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

START, QUERY_KEY, VALUE, DEPTH = 0.5, 10.0, 2.0, 20
TAME = 0.25


@claim(
    "residual-below-one-suffices",
    group="collapse",
    notes=("deep-dive",),
    title="If the first residual is below 1, the residual drops to zero almost at once",
    formula=r"\| \mathrm{res}(X) \| < 1 \Rightarrow \| \mathrm{res}(X^L) \| \to 0",
    plain="‖res(X)‖ < 1 ⇒ ‖res(X^L)‖ → 0",
    says="The residual is cubed again and again; as long as it starts below 1, it falls to zero nearly "
    "at once.",
    correction="What must be below 1 is $c r^2$ with $c = 4 \\gamma \\beta H / \\sqrt{d_{qk}}$ and $r$ the first "
    "residual: a residual below 1 suffices only where $c \\le 1$.",
    why="Two tokens start with a residual of {start:.3f}, below 1, and weights for which the factor $c$ is "
    "{factor:.1f}. After {depth:.0f} layers the residual has grown {grown:.3g} times. The same start with "
    "weights for which $c$ is {tame_factor:.2f} collapses, to 10 to the power {tame:.0f} after ten layers. "
    "The cube of a small number is small, but it is multiplied before it is cubed again.",
    checks=(
        Check(
            "grown",
            "claim",
            "at most",
            1.0,
            label="residual after 20 layers over that at the start",
            because="What drops to zero is not larger after 20 layers than at the start.",
            log=True,
        ),
        Check(
            "condition",
            "correction",
            "at least",
            1.0,
            label="c r² of the network that grows",
            because="The true condition must refuse what grows.",
        ),
        Check(
            "tame_condition",
            "correction",
            "at most",
            1.0,
            label="c r² of the network that collapses",
            because="It is chosen below the true condition.",
        ),
        Check(
            "tame",
            "correction",
            "at most",
            -3.0,
            label="log₁₀ of its residual after ten layers over the first",
            because="Collapsed is read as at least a thousandfold smaller.",
        ),
    ),
    seconds=0.9,
    seeded=False,
)
def measure(seed: int) -> Measured:
    """One start, two sets of weights."""
    from leadline.claims.collapse._stacks import two_tokens
    from leadline.theory.rank_collapse.collapse_published import published_factor

    wild = two_tokens(START, query_key=QUERY_KEY, value=VALUE, depth=DEPTH)
    tame = two_tokens(START, query_key=TAME, value=1.0, depth=10)
    assert wild.facts is not None and tame.facts is not None
    factors = [published_factor(one.facts) for one in (wild, tame) if one.facts is not None]
    assert factors[0] is not None and factors[1] is not None
    start = wild.facts.log10_composite[0]
    sites = tuple(float(site) for site in range(DEPTH + 1))
    return Measured(
        {
            "depth": float(DEPTH),
            "start": 10.0**start,
            "factor": 10.0 ** factors[0],
            "tame_factor": 10.0 ** factors[1],
            "grown": 10.0 ** float(wild.log10_residual[-1] - wild.log10_residual[0]),
            "condition": 10.0 ** (factors[0] + 2.0 * start),
            "tame_condition": 10.0 ** (factors[1] + 2.0 * start),
            "tame": float(tame.log10_residual[-1] - tame.log10_residual[0]),
        },
        Picture(
            "layer",
            "log₁₀ of the residual",
            {
                "large weights": (sites, tuple(map(float, wild.log10_residual))),
                "small weights": (sites[:6], tuple(map(float, tame.log10_residual[:6]))),
            },
        ),
    )
