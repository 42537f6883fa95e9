"""The note's condition for convergence: 4 gamma beta < sqrt(d_qk), with H heads 4 gamma beta H.

The bound is r_L <= r (c r^2)^((3^L - 1)/2) with c = 4 gamma beta H / sqrt(d): it falls where c r^2 < 1.
The note concludes from c < 1 alone. Two tokens +a and -a of width one become w a tanh(tau a^2): with
tau = 0.3, w = 1.05 and a = 4, c is 0.89 and the residual grows for ever. Drawn networks with the
note's condition and without the true one grow too. That is inside the note's hypotheses.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

START, QUERY_KEY, VALUE, DEPTH = 4.0, 0.3, 1.05, 40
SMALLER = 0.5


@claim(
    "small-factor-suffices-for-collapse",
    group="collapse",
    notes=("deep-dive",),
    title="The residual converges to zero if 4γβ is below the root of the head width",
    formula=r"4 \gamma \beta H < \sqrt{d_{qk}} \Rightarrow \| \mathrm{res}(X^L) \| \to 0",
    plain="4γβH < √d_qk ⇒ ‖res(X^L)‖ → 0",
    says="For the bound to guarantee convergence it suffices that 4γβ (times the number of heads, "
    "times the Lipschitz constant of the MLPs) is below the root of the head width.",
    correction="The residual itself belongs into the condition: $4 \\gamma \\beta \\lambda \\, \\| "
    "\\mathrm{res}(X) \\|_{1,\\infty}^2 < \\sqrt{d_{qk}}$ suffices for one head, and then every layer lowers the "
    "residual. For several heads the factor of the proved bound takes its place.",
    why="Two tokens of width one, +4 and -4, have 4γβ at {factor:.2f} of the root of the head width, and "
    "after {depth:.0f} layers their residual is {grown:.1f} times what it was. The bound cubes the "
    "residual, so a large one outweighs a small factor; from {smaller:.1f} instead of 4 the same network "
    "collapses. Drawn networks that meet the true condition never grew in any layer: the worst factor "
    "is {worst:.4f}.",
    checks=(
        Check(
            "grown",
            "claim",
            "at most",
            1.0,
            label="residual after 40 layers over that at the start",
            because="What converges to zero is not larger after 40 layers than at the start.",
            log=True,
        ),
        Check(
            "drawn",
            "claim",
            "at most",
            0.0,
            label="log₁₀ of the same, the worst drawn network",
            because="What converges to zero is not larger after 40 layers than at the start.",
        ),
        Check(
            "factor",
            "correction",
            "at most",
            1.0,
            label="4γβ over the root of the head width, +4, -4",
            because="The counterexample must meet the note's own condition.",
        ),
        Check(
            "promised",
            "correction",
            "at most",
            0.5,
            label="whether the true condition holds for +4, -4",
            because="It must refuse what grows: 0 is no, 1 is yes.",
        ),
        Check(
            "kept",
            "correction",
            "at least",
            0.5,
            label="whether it holds for +0.5, -0.5",
            because="It must promise the collapse that is measured there: 0 is no, 1 is yes.",
        ),
        Check(
            "edge",
            "correction",
            "near",
            1.0,
            within=0.5,
            label="whether it turns where c r² passes 1",
            because="It holds for c r² = 0.98 (1) and not for 1.02 (0): the difference is 1.",
        ),
        Check(
            "collapsed",
            "correction",
            "at most",
            -3.0,
            label="log₁₀ of the residual from a start that meets it",
            because="Collapsed is read as at least a thousandfold smaller.",
        ),
        Check(
            "worst",
            "correction",
            "at most",
            1.0,
            label="largest factor of a layer where the true condition holds",
            because="A theorem: below the condition every layer lowers the residual.",
        ),
    ),
    seconds=2.2,
)
def measure(seed: int) -> Measured:
    """The two tokens from two starts, and searches on both sides of the true condition."""
    import math

    from leadline.claims.collapse._stacks import two_tokens
    from leadline.instruments.attacks.convergence import (
        AS_WRITTEN,
        CONVERGENCE,
        as_written_attack,
        convergence_attack,
    )
    from leadline.theory.rank_collapse.collapse_published import published_factor
    from leadline.theory.rank_collapse.convergence import converges

    large = two_tokens(START, query_key=QUERY_KEY, value=VALUE, depth=DEPTH)
    small = two_tokens(SMALLER, query_key=QUERY_KEY, value=VALUE, depth=10)
    assert large.facts is not None and small.facts is not None
    factor = published_factor(large.facts)
    assert factor is not None
    edges = [
        two_tokens(
            math.sqrt(wanted / (2.0 * 10.0**factor)), query_key=QUERY_KEY, value=VALUE, depth=1
        ).facts
        for wanted in (0.98, 1.02)
    ]
    below, above = (float(bool(facts is not None and converges(facts))) for facts in edges)
    drawn = as_written_attack(count=256, seed=seed)[AS_WRITTEN].outside.ratio
    held = convergence_attack(count=200, seed=seed)[CONVERGENCE].within.ratio
    sites = tuple(float(site) for site in range(DEPTH + 1))
    return Measured(
        {
            "depth": float(DEPTH),
            "smaller": SMALLER,
            "factor": 10.0**factor,
            "grown": 10.0 ** float(large.log10_residual[-1] - large.log10_residual[0]),
            "drawn": math.log10(max(drawn, 1e-300)),
            "promised": float(bool(converges(large.facts))),
            "edge": below - above,
            "kept": float(bool(converges(small.facts))),
            "collapsed": float(small.log10_residual[-1] - small.log10_residual[0]),
            "worst": held,
        },
        Picture(
            "layer",
            "log₁₀ of the residual",
            {
                "from +4, -4": (sites, tuple(map(float, large.log10_residual))),
                "from +0.5, -0.5": (sites[:6], tuple(map(float, small.log10_residual[:6]))),
            },
        ),
    )
