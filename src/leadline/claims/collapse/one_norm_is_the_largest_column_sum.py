"""|A|_1 is the largest column sum of |A|, |A|_inf the largest row sum.

Both as norms of the linear map: |A|_inf = max |Ax|_inf over |x|_inf = 1, attained at signs, and |A|_1
is that of the transpose. The table of the note states the two formulas.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

SIZE = 8
ROUNDING = 1e-12


@claim(
    "one-norm-is-the-largest-column-sum",
    group="collapse",
    notes=("deep-dive",),
    title="The 1-norm is the largest column sum, the ∞-norm the largest row sum",
    formula=r"\|A\|_1 = \max_j \sum_i |a_{ij}|, \quad \|A\|_\infty = \max_i \sum_j |a_{ij}|",
    plain="‖A‖₁ = max_j Σ_i |a_ij|, ‖A‖_∞ = max_i Σ_j |a_ij|",
    says="A table gives the 1-norm as the largest sum of absolute values in a column and the "
    "∞-norm as the largest in a row.",
    correction="",
    why="Every vector of signs was put through random matrices. The largest entry that came out is the "
    "largest row sum (off by {rows}), and the transposed matrix gives the largest column sum (off by "
    "{columns}). So the two formulas are the norms of the map itself.",
    checks=(
        Check(
            "columns",
            "claim",
            "at most",
            ROUNDING,
            label="largest column sum against the 1-norm",
            because="The two are equal; some thousand eps are left for rounding.",
            log=True,
        ),
        Check(
            "rows",
            "claim",
            "at most",
            ROUNDING,
            label="largest row sum against the ∞-norm",
            because="The two are equal; some thousand eps are left for rounding.",
            log=True,
        ),
    ),
    seconds=0.01,
)
def measure(seed: int) -> Measured:
    """Leadline's sums of a product L R against the largest entry over all sign vectors."""
    import itertools

    import numpy as np
    import torch

    from leadline.instruments.collapse.weight_products import column_and_row_sums

    rng = np.random.default_rng([seed, 1])
    left, right = rng.normal(size=(SIZE, 3)), rng.normal(size=(3, SIZE))
    sums = column_and_row_sums(torch.from_numpy(left[None]), torch.from_numpy(right[None]))
    columns, rows = (float(one) for one in sums)
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=SIZE))).T
    a = left @ right
    return Measured(
        {
            "columns": abs(columns / float(np.abs(a.T @ signs).max()) - 1.0),
            "rows": abs(rows / float(np.abs(a @ signs).max()) - 1.0),
        }
    )
