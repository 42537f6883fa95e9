"""1 <= |A|_2 <= sqrt(c_max) <= sqrt(n) for every row-stochastic matrix.

The three bounds of the catalog (`one`, `column-sum`, `sqrt-queries`) are attacked at random and by
gradient ascent, without a mask, causal and with random masks; norms are singular values in float64.
The upper end is attained by a column of ones. Proofs stand with the bounds in `theory.attention`.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.attention._drawn import attention_matrices, largest
from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

KINDS = ("logits", "logits-causal", "open", "causal")
ROUNDING = 1 + 1e-12
BECAUSE = "A theorem; singular values of matrices of up to 24 tokens are right to 1e-14 in float64."


@claim(
    "attention-norm-bounds",
    group="attention",
    notes=("deep-dive",),
    title="The spectral norm of an attention matrix lies between 1 and √n",
    formula=r"1 \leq \|A\|_2 \leq \sqrt{c_{\max}} \leq \sqrt{n}",
    plain="1 ≤ ‖A‖₂ ≤ √c_max ≤ √n",
    says="The spectral norm of a row-stochastic matrix is at least 1, at most the root of the "
    "largest column sum, and so at most the root of n; the worst case is a column of ones.",
    correction="",
    why="Some thousand attention matrices were drawn or pushed uphill by gradient ascent. The norm "
    "was never above √c_max (ratio {ratio_column_sum:.6f} at most) nor √n ({ratio_root:.6f}), and 1 "
    "was never above the norm ({ratio_one:.6f}). When every query looks at the same key the norm is "
    "√n: {ratio_column_of_ones:.6f} of it.",
    checks=(
        Check(
            "ratio_one", "claim", "at most", ROUNDING, label="1 over the norm, worst case",
            because=BECAUSE,
        ),
        Check(
            "ratio_column_sum", "claim", "at most", ROUNDING, label="norm over √c_max, worst case",
            because=BECAUSE,
        ),
        Check(
            "ratio_root", "claim", "at most", ROUNDING, label="norm over √n, worst case",
            because=BECAUSE,
        ),
        Check(
            "ratio_by_hand", "claim", "at most", ROUNDING,
            label="norm over √c_max, matrices drawn apart", because=BECAUSE,
        ),
        Check(
            "ratio_column_of_ones", "claim", "near", 1.0, within=1e-12,
            label="norm over √n for a column of ones",
            because="An identity: such a matrix is 1 e', of norm √n, to rounding.",
        ),
    ),
    source="Schur 1911",
    seconds=0.5,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Attack three bounds of the catalog, and look at drawn matrices beside them."""
    import torch

    from leadline.claims.attention._ratios import worst_ratios
    from leadline.numerics.spectra.spectrum import spectral_norm
    from leadline.theory import BOUNDS, AttentionFacts

    rng = np.random.default_rng([seed, 4620])
    worst = worst_ratios(("one", "column-sum", "sqrt-queries"), KINDS, seed=seed)
    ones = torch.zeros(17, 17, dtype=torch.float64)
    ones[:, 5] = 1
    root = BOUNDS.get("sqrt-queries")().value(AttentionFacts(queries=17, keys=17))
    assert root is not None
    return Measured(
        {
            "ratio_one": worst["one"],
            "ratio_column_sum": worst["column-sum"],
            "ratio_root": worst["sqrt-queries"],
            "ratio_by_hand": max(
                largest(one) / float(np.sqrt(one.sum(0).max()))
                for one in attention_matrices(rng, 200)
            ),
            "ratio_column_of_ones": float(spectral_norm(ones).value) / root,
        }
    )
