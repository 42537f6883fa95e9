"""The theorem on one head: |res X^L| <= (4 gamma beta / sqrt d)^{(3^L-1)/2} |res X|^{3^L}.

In the composite measure, with beta = max |W_QK|_1 |W_V W_O|_{1,inf}, and gamma as `theory` defines it
from the logits. "Any stack of pure single-head attention" is read as what the theorem is about:
no mask, no norm. The same sentence is carried to a causal mask, where it fails, since the fall is
only exponential. Networks are drawn at random and climb on measured / predicted. The corrected
statement has the constants that can be proved: 2 (1 - 1/n), and sqrt(2) (1 - 1/n), instead of 4.

Source: Dong, Cordonnier, Loukas 2021, arXiv 2103.03404; the proof of `collapse-proved`.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

ROUNDING = 1.0 + 1e-9
DEPTH, SMALL = 4, 1e-4


@claim(
    "residual-obeys-the-cubic-bound",
    group="collapse",
    notes=("deep-dive",),
    title="The residual of pure attention stays below a tower of cubes",
    formula=r"\| \mathrm{res}(X^L) \|_{1,\infty} \le \left( \frac{4 \gamma \beta}{\sqrt{d_{qk}}} \right)^{\frac{3^L - 1}{2}} \| \mathrm{res}(X) \|_{1,\infty}^{3^L}",
    plain="‖res(X^L)‖₁,∞ ≤ (4γβ/√d_qk)^((3^L−1)/2) ‖res(X)‖₁,∞^(3^L)",
    says="For every stack of single-head self-attention layers the residual of the output is bounded "
    "by a prefactor times the residual of the input to the power $3^L$.",
    correction="It holds with no mask, no norm and no positions in the logits, and there the constant 4 "
    "can be replaced by $\\sqrt{2}(1 - 1/n)$, which two tokens attain.",
    why="Networks of many shapes were drawn, and some of them climbed towards a violation. The worst "
    "came to {published:.3f} of the published bound and to {sharp:.3f} of the sharp one. With a causal "
    "mask the bound is broken: after {depth:.0f} layers the residual is 10 to the power {causal:.1f} times "
    "the bound, since what falls exponentially cannot stay below a tower of cubes.",
    checks=(
        Check(
            "published",
            "claim",
            "at most",
            ROUNDING,
            label="residual over the published bound, the worst network",
            because="An upper bound: no ratio exceeds 1 but by rounding.",
        ),
        Check(
            "causal",
            "reach",
            "at most",
            0.0,
            label="log₁₀ of residual over bound, causal mask",
            because="An upper bound: the logarithm of the ratio does not exceed 0.",
        ),
        Check(
            "proved",
            "correction",
            "at most",
            ROUNDING,
            label="residual over the bound with 2(1 - 1/n)",
            because="A theorem: no ratio exceeds 1 but by rounding.",
        ),
        Check(
            "sharp",
            "correction",
            "at most",
            ROUNDING,
            label="residual over the bound with √2(1 - 1/n)",
            because="A theorem: no ratio exceeds 1 but by rounding.",
        ),
        Check(
            "attained",
            "correction",
            "near",
            1.0,
            within=1e-3,
            label="share of the sharp bound that two near tokens reach",
            because="w a tanh(a²) tends to w a³ as a falls, which is the bound for two tokens.",
        ),
        Check(
            "reached",
            "correction",
            "near",
            0.1768,
            within=1e-3,
            label="share of the published bound that they reach",
            because="√2(1 - 1/2) over 4 is the root of 2 over 8, by the constants alone.",
        ),
    ),
    seconds=1.0,
    source="Dong, Cordonnier, Loukas 2021, arXiv 2103.03404",
)
def measure(seed: int) -> Measured:
    """Search among networks without a mask, then among causal ones."""
    from leadline.claims.collapse._searched import searched
    from leadline.claims.collapse._stacks import drawn_layers, drawn_tokens, two_tokens
    from leadline.instruments.collapse.measure import collapse_weights
    from leadline.theory.rank_collapse import COLLAPSE_BOUNDS

    bounds = ("collapse-published", "collapse-proved", "collapse-sharp")
    found = searched("one-head", bounds, seed=seed)
    masked = collapse_weights(
        SMALL * drawn_tokens(seed), drawn_layers(seed, depth=DEPTH), causal=True, facts=True
    )
    near = two_tokens(1e-3, query_key=1.0, value=1.0, depth=1)
    assert near.facts is not None and masked.facts is not None
    sharp = COLLAPSE_BOUNDS.get("collapse-sharp")().log10_values(near.facts)
    published = COLLAPSE_BOUNDS.get("collapse-published")()
    said, loose = published.log10_values(masked.facts), published.log10_values(near.facts)
    assert sharp is not None and said is not None and loose is not None
    return Measured(
        {
            "published": found["collapse-published"].within.ratio,
            "proved": found["collapse-proved"].within.ratio,
            "sharp": found["collapse-sharp"].within.ratio,
            "attained": 10.0 ** (near.facts.log10_composite[-1] - sharp[-1]),
            "reached": 10.0 ** (near.facts.log10_composite[-1] - loose[-1]),
            "depth": float(DEPTH),
            "causal": masked.facts.log10_composite[-1] - said[-1],
        }
    )
