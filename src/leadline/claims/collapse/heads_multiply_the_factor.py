"""With H heads the factor of the bound becomes 4 gamma beta H / sqrt(d).

Read with beta from W_QK,h and W_h = W_V,h W_O,h. The published proof adds heads in |.|_{1,inf}, whose
triangle inequality fails, so it proves less; networks are searched for a violation. None was found,
which is evidence and no proof. That H is needed is shown by equal heads of width one on tokens +a and -a,
which write H a tanh(a^2): with gamma = sqrt(2)/2 and r = sqrt(2) a the bound is 8 H a^3, and r' is near
sqrt(2) H a^3, so sqrt(2)/8 of it, and H times as much of the bound without H.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

HEADS, START = 8, 0.01


@claim(
    "heads-multiply-the-factor",
    group="collapse",
    notes=("deep-dive",),
    title="H heads multiply the factor of the bound by H",
    formula=r"\| \mathrm{res}(X^L) \|_{1,\infty} \le \left( \frac{4 \gamma \beta H}{\sqrt{d_{qk}}} \right)^{\frac{3^L - 1}{2}} \| \mathrm{res}(X) \|_{1,\infty}^{3^L}",
    plain="‖res(X^L)‖₁,∞ ≤ (4γβH/√d_qk)^((3^L−1)/2) ‖res(X)‖₁,∞^(3^L)",
    says="For layers of H heads the bound is the one for a single head with its factor multiplied by "
    "H, one for each of the parallel paths of a layer.",
    correction="",
    why="Networks of two to four heads were drawn, with and without MLPs, and some climbed towards a "
    "violation. The worst came to {heads:.3f} of the bound, with MLPs to {mlps:.3f}. Eight equal heads came to "
    "{without_factor:.3f} times the bound of one head, so the factor is needed. The published proof "
    "adds heads in a measure whose triangle inequality fails, so this is evidence and no proof; with one γ for "
    "all heads together and β from the largest norms of all heads the bound is proved.",
    checks=(
        Check(
            "heads",
            "claim",
            "at most",
            1.0 + 1e-9,
            label="residual over the bound, the worst network",
            because="An upper bound: no ratio exceeds 1 but by rounding.",
        ),
        Check(
            "mlps",
            "claim",
            "at most",
            1.0 + 1e-9,
            label="the same with MLPs",
            because="An upper bound: no ratio exceeds 1 but by rounding.",
        ),
        Check(
            "equal_heads",
            "claim",
            "near",
            0.17678,
            within=1e-3,
            label="residual over the bound, eight equal heads",
            because="√2/8 for near tokens with any number of heads, if the factor is H.",
        ),
        Check(
            "without_factor",
            "claim",
            "at least",
            1.0,
            label="residual of eight equal heads over the bound of one",
            because="If H heads did not multiply the factor, the bound of one would hold for eight.",
        ),
    ),
    seconds=1.9,
    source="Dong, Cordonnier, Loukas 2021, arXiv 2103.03404",
)
def measure(seed: int) -> Measured:
    """Search among networks of several heads; the bound's own conditions ask for one."""
    import numpy as np

    from leadline.claims.collapse._searched import searched
    from leadline.instruments.collapse.measure import collapse_weights
    from leadline.theory.rank_collapse import COLLAPSE_BOUNDS

    name = "collapse-published"
    x = np.array([[START], [-START]])
    found: dict[int, tuple[float, float]] = {}
    for heads in (1, HEADS):
        row = np.ones((1, heads))
        layer = {"W_Q": row, "W_K": row, "W_V": row, "W_O": row.T}
        facts = collapse_weights(x, [layer], heads=heads, facts=True).facts
        assert facts is not None
        values = COLLAPSE_BOUNDS.get(name)().log10_values(facts)
        assert values is not None
        found[heads] = facts.log10_composite[-1], values[-1]
    after = found[HEADS][0]
    return Measured(
        {
            "equal_heads": 10.0 ** (after - found[HEADS][1]),
            "without_factor": 10.0 ** (after - found[1][1]),
            "heads": searched("heads", (name,), seed=seed)[name].outside.ratio,
            "mlps": searched("heads-mlp", (name,), seed=seed)[name].outside.ratio,
        }
    )
