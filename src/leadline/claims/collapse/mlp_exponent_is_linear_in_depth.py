"""The theorem with MLPs as the note prints it: the prefactor to the power (3L - 1)/2.

L steps r' <= c r^3 give (3^L - 1)/2: 1, 4, 13, 40. The printed exponent is 1, 2.5, 4, 5.5. It is read as
printed, and refuted inside its hypotheses: two tokens, attention with a large W_QK and an MLP that is
the identity, relu(z) - relu(-z), with lambda = 2 in the composite measure; for two layers the residual
is about c^4 r^9 and far above c^2.5 r^9, since c is large and c r^2 small.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

START, QUERY_KEY, DEPTH = 1e-4, 1e6, 2


@claim(
    "mlp-exponent-is-linear-in-depth",
    group="collapse",
    notes=("deep-dive",),
    title="With MLPs the prefactor of the bound has the exponent (3L − 1)/2",
    formula=r"\| \mathrm{res}(X^L) \|_{1,\infty} \le \left( \frac{4 \gamma \beta H \lambda}{\sqrt{d_{qk}}} \right)^{\frac{3L - 1}{2}} \| \mathrm{res}(X) \|_{1,\infty}^{3^L}",
    plain="‖res(X^L)‖₁,∞ ≤ (4γβHλ/√d_qk)^((3L−1)/2) ‖res(X)‖₁,∞^(3^L)",
    says="With an MLP of Lipschitz constant λ after every attention layer, the bound has the prefactor "
    "to the power $(3L - 1)/2$.",
    correction="The exponent is $(3^L - 1)/2$, as without MLPs: each layer cubes what the layers before it "
    "have multiplied.",
    why="Two tokens went through {depth:.0f} layers whose MLP is the identity made of two ReLU units, "
    "λ = {lipschitz:.0f}. The residual is 10 to the power {written:.1f} times the bound as printed. With "
    "$(3^L - 1)/2$, which is 4 for two layers instead of 2.5, it is {right:.2g} of the bound, and among "
    "drawn networks with MLPs the worst came to {searched:.3f}.",
    checks=(
        Check(
            "written",
            "claim",
            "at most",
            1e-9,
            label="log₁₀ of the residual over the bound as printed",
            because="An upper bound: the logarithm of the ratio does not exceed 0 but by rounding.",
        ),
        Check(
            "right",
            "correction",
            "at most",
            1.0 + 1e-9,
            label="residual over the bound with (3^L - 1)/2",
            because="A theorem: no ratio exceeds 1 but by rounding.",
        ),
        Check(
            "lipschitz",
            "correction",
            "near",
            2.0,
            within=1e-9,
            label="λ of the identity made of two ReLU units",
            because="(1, -1) and its transpose measure the root of 2 each.",
        ),
        Check(
            "searched",
            "correction",
            "at most",
            1.0 + 1e-9,
            label="the same, the worst drawn network with MLPs",
            because="A theorem for one head: no ratio exceeds 1 but by rounding.",
        ),
    ),
    seconds=2.2,
)
def measure(seed: int) -> Measured:
    """The two tokens, with the identity as an MLP, and a search among networks with MLPs."""
    from dataclasses import replace

    from leadline.claims.collapse._searched import searched
    from leadline.claims.collapse._stacks import two_tokens
    from leadline.theory.rank_collapse import COLLAPSE_BOUNDS
    from leadline.theory.rank_collapse.collapse_published import published_factor
    from leadline.theory.rank_collapse.lipschitz import composite_lipschitz

    facts = two_tokens(START, query_key=QUERY_KEY, value=1.0, depth=DEPTH).facts
    assert facts is not None
    # up = (1, -1): column sums 1, row sum 2; down is its transpose.
    lipschitz = composite_lipschitz("relu", 1.0, 2.0, 2.0, 1.0)
    facts = replace(
        facts, layers=tuple(replace(layer, lipschitz=lipschitz) for layer in facts.layers)
    )
    factor = published_factor(facts)
    values = COLLAPSE_BOUNDS.get("collapse-published")().log10_values(facts)
    assert factor is not None and values is not None
    start, end = facts.log10_composite[0], facts.log10_composite[-1]
    printed = 0.5 * (3 * DEPTH - 1) * factor + 3**DEPTH * start
    name = "collapse-published"
    return Measured(
        {
            "depth": float(DEPTH),
            "lipschitz": lipschitz,
            "written": end - printed,
            "right": 10.0 ** (end - values[-1]),
            "searched": searched("one-head-mlp", (name,), seed=seed)[name].within.ratio,
        }
    )
