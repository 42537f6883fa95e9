"""The hypothesis with several heads as the note writes it: |W_QK,h|_1 |W_V,h|_{1,inf} <= beta.

The layer is sum_h P_h X W_h with W_h = W_V,h W_O,h. If W_O does not enter beta, moving a factor from
W_V to W_O leaves the network as it is and makes beta as small as one likes. What can be proved has
sum_h |W_QK,h|_1 and max_h of both norms of W_h (`collapse-proved`).
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

MOVED, HEADS = 1e8, 2
EQUAL, START = 8, 0.01


@claim(
    "value-norms-suffice-with-heads",
    group="collapse",
    notes=("deep-dive",),
    title="With several heads, β from the value matrices alone bounds the residual",
    formula=r"\|W_{QK,h}\|_1 \|W_{V,h}\|_{1,\infty} \le \beta \Rightarrow \| \mathrm{res}(X') \| \le \frac{4 \gamma \beta H}{\sqrt{d_{qk}}} \| \mathrm{res}(X) \|^3",
    plain="‖W_QK,h‖₁‖W_V,h‖₁,∞ ≤ β ⇒ ‖res(X′)‖ ≤ 4γβH/√d_qk ‖res(X)‖³",
    says="For layers of several heads β has to limit the 1-norm of the query-key product times the "
    "measure of the value matrix, for every layer and head.",
    correction="The output matrix belongs to it: β must limit the norms of $W_{QK,h}$ and of $W_h = W_{V,h} "
    "W_{O,h}$. Proved is the bound with $\\sum_h \\|W_{QK,h}\\|_1$ and $\\sqrt{\\max_h \\|W_h\\|_1 \\max_h "
    "\\|W_h\\|_\\infty}$.",
    why="A factor of {moved:.0e} was moved from the value matrices to the output matrices. The network is "
    "the same, but the β of the note is smaller by that factor, and the residual is {written:.3g} times its "
    "bound. With the products in β it is {right:.2g} of the bound, and over all networks that were drawn "
    "and climbed the proved bound was never exceeded (at most {proved:.3f}).",
    checks=(
        Check(
            "written",
            "claim",
            "at most",
            1.0 + 1e-9,
            label="residual over the bound with the note's β",
            because="An upper bound: no ratio exceeds 1 but by rounding.",
            log=True,
        ),
        Check(
            "right",
            "correction",
            "at most",
            1.0 + 1e-9,
            label="the same with the products in β",
            because="An upper bound: no ratio exceeds 1 but by rounding.",
        ),
        Check(
            "proved",
            "correction",
            "at most",
            1.0 + 1e-9,
            label="residual over the proved bound, the worst network",
            because="A theorem: no ratio exceeds 1 but by rounding.",
        ),
        Check(
            "equal_heads",
            "correction",
            "near",
            0.70711,
            within=1e-3,
            label="residual over the proved bound, eight equal heads",
            because="Tokens +a, -a become 8 a tanh(a²): r' is √2 8 a³ and the bound 2 · 8 a³ for small a.",
        ),
    ),
    seconds=0.8,
)
def measure(seed: int) -> Measured:
    """One layer with shifted factors, a search against the proved bound, and equal heads."""
    from dataclasses import replace

    import numpy as np

    from leadline.claims.collapse._searched import searched
    from leadline.claims.collapse._stacks import drawn_layers, drawn_tokens
    from leadline.instruments.collapse.measure import collapse_weights
    from leadline.theory.rank_collapse import COLLAPSE_BOUNDS

    layer = drawn_layers(seed, depth=1)[0]
    layer |= {"W_V": layer["W_V"] / MOVED, "W_O": layer["W_O"] * MOVED}
    found = collapse_weights(0.1 * drawn_tokens(seed), [layer], heads=HEADS, facts=True)
    facts = found.facts
    assert facts is not None
    values = np.split(np.abs(layer["W_V"]), HEADS, axis=1)
    alone = replace(
        facts.layers[0],
        value_output_1=tuple(float(v.sum(0).max()) for v in values),
        value_output_inf=tuple(float(v.sum(1).max()) for v in values),
    )
    bound = COLLAPSE_BOUNDS.get("collapse-published")()
    ratios: list[float] = []
    for said in (replace(facts, layers=(alone,)), facts):
        predicted = bound.log10_values(said)
        assert predicted is not None
        ratios.append(10.0 ** (facts.log10_composite[-1] - predicted[-1]))
    proved = searched("heads", ("collapse-proved",), seed=seed)["collapse-proved"].within.ratio
    row = np.ones((1, EQUAL))
    layer = {"W_Q": row, "W_K": row, "W_V": row, "W_O": row.T}
    x = np.array([[START], [-START]])
    equal = collapse_weights(x, [layer], heads=EQUAL, facts=True).facts
    assert equal is not None
    limits = COLLAPSE_BOUNDS.get("collapse-proved")().log10_values(equal)
    assert limits is not None
    return Measured(
        {
            "moved": MOVED,
            "written": ratios[0],
            "right": ratios[1],
            "proved": proved,
            "equal_heads": 10.0 ** (equal.log10_composite[-1] - limits[-1]),
        }
    )
