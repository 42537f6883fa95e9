"""With H heads the factor of the bound becomes 4 gamma beta H / sqrt(d).

Read with beta from W_QK,h and W_h = W_V,h W_O,h. The published proof adds heads in |.|_{1,inf}, whose
triangle inequality fails, so it proves less; networks are searched for a violation. None was found,
which is evidence and no proof.
"""

from __future__ import annotations

from leadline.analysis.claim import Check
from leadline.claims._entry import Measured, claim


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
    "violation. The worst came to {heads:.3f} of the bound, with MLPs to {mlps:.3f}. The published proof "
    "adds heads in a measure whose triangle inequality fails, so this is evidence and no proof; with β "
    "from the larger of both norms of every head the bound is proved.",
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
    ),
    seconds=1.9,
    source="Dong, Cordonnier, Loukas 2021, arXiv 2103.03404",
)
def measure(seed: int) -> Measured:
    """Search among networks of several heads; the bound's own conditions ask for one."""
    from leadline.claims.collapse._searched import searched

    name = "collapse-published"
    return Measured(
        {
            "heads": searched("heads", (name,), seed=seed)[name].outside.ratio,
            "mlps": searched("heads-mlp", (name,), seed=seed)[name].outside.ratio,
        }
    )
