"""The hypothesis as the note writes it: |W_Q|_1 |W_K|_1 |W_V|_{1,inf} <= beta.

The theorem needs |W_QK|_1 with W_QK = W_Q W_K', and |W_Q W_K'|_1 <= |W_Q|_1 |W_K'|_1 =
|W_Q|_1 |W_K|_inf: the other norm of W_K. With width one and W_Q = W_K = (1, ..., 1) of k entries the
note's product is 1 and |W_QK|_1 is k. So the bound with the note's beta is broken by a factor that
grows like k, inside its own hypotheses.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

HEAD_WIDTH, START = 64, 0.01
DRAWS = 100


@claim(
    "query-and-key-norms-suffice",
    group="collapse",
    notes=("deep-dive",),
    title="The bound holds with β from the 1-norms of W_Q and W_K",
    formula=r"\|W_Q\|_1 \|W_K\|_1 \|W_V\|_{1,\infty} \le \beta \Rightarrow \| \mathrm{res}(X') \| \le \frac{4 \gamma \beta}{\sqrt{d_{qk}}} \| \mathrm{res}(X) \|^3",
    plain="‖W_Q‖₁‖W_K‖₁‖W_V‖₁,∞ ≤ β ⇒ ‖res(X′)‖ ≤ 4γβ/√d_qk ‖res(X)‖³",
    says="The bound for one head is stated with a β that limits the 1-norm of the query matrix times "
    "the 1-norm of the key matrix times the measure of the value matrix.",
    correction="β must limit $\\|W_Q W_K^T\\|_1 \\|W_V W_O\\|_{1,\\infty}$. If the two matrices are to be "
    "apart, the key matrix enters with its ∞-norm: $\\|W_Q W_K^T\\|_1 \\le \\|W_Q\\|_1 \\|W_K\\|_\\infty$.",
    why="Two tokens of width one met queries and keys of {head_width:.0f} equal entries. The 1-norms of "
    "both matrices are 1, but their product is {head_width:.0f}. The residual came out {written:.1f} times "
    "as large as the bound with the note's β; with the product in β it is {right:.3f} of the bound. "
    "Transposing a matrix swaps its 1-norm and its ∞-norm.",
    checks=(
        Check(
            "written",
            "claim",
            "at most",
            1.0 + 1e-9,
            label="residual over the bound with the note's β",
            because="An upper bound: no ratio exceeds 1 but by rounding.",
        ),
        Check(
            "right",
            "correction",
            "at most",
            1.0 + 1e-9,
            label="the same with the norm of the product",
            because="A theorem: no ratio exceeds 1 but by rounding.",
        ),
        Check(
            "submultiplied",
            "correction",
            "at most",
            1.0 + 1e-12,
            label="|W_Q W_K'|₁ over |W_Q|₁ |W_K|_∞, the worst draw",
            because="Submultiplicativity of the 1-norm; 1e-12 is rounding.",
        ),
    ),
    seconds=0.06,
)
def measure(seed: int) -> Measured:
    """One layer of two tokens with wide queries and keys, then norms of drawn products."""
    from dataclasses import replace

    import numpy as np

    from leadline.instruments.collapse.measure import collapse_weights
    from leadline.theory.rank_collapse import COLLAPSE_BOUNDS

    ones, one = np.ones((1, HEAD_WIDTH)), np.ones((1, 1))
    layer = {"W_Q": ones, "W_K": ones, "W_V": one, "W_O": one}
    found = collapse_weights(np.array([[START], [-START]]), [layer], facts=True)
    facts = found.facts
    assert facts is not None
    bound = COLLAPSE_BOUNDS.get("collapse-published")()
    note = float(np.abs(ones).sum(0).max()) ** 2
    written = replace(facts, layers=(replace(facts.layers[0], query_key=(note,)),))
    ratios: list[float] = []
    for one_facts in (written, facts):
        values = bound.log10_values(one_facts)
        assert values is not None
        ratios.append(10.0 ** (facts.log10_composite[-1] - values[-1]))
    rng = np.random.default_rng([seed, 61])
    worst = 0.0
    for _ in range(DRAWS):
        q, k = rng.normal(size=(2, 5, 3)) * rng.exponential(size=(2, 1, 3)) ** 2
        worst = max(
            worst,
            float(np.linalg.norm(q @ k.T, 1) / np.linalg.norm(q, 1) / np.linalg.norm(k, np.inf)),
        )
    return Measured(
        {
            "head_width": float(HEAD_WIDTH),
            "written": ratios[0],
            "right": ratios[1],
            "submultiplied": worst,
        }
    )
