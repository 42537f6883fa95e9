"""Dividing by the root of the dimension keeps the products stable.

For queries and keys with independent entries of variance one the product has variance d_h, and the
scaled product variance one at any width: that is the argument of Vaswani et al. 2017 (arXiv
1706.03762, footnote 4), and the setting of the claim. A query that points along its key has the
scaled product sqrt(d_h): there a reader would carry the sentence, and it fails.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

WIDTHS = (16, 64, 256, 1024)
COUNT = 1024


@claim(
    "scaling-keeps-logits-level",
    group="attention",
    notes=("deep-dive",),
    title="Dividing by √d_h keeps the logits at one size whatever the width",
    formula=r"\mathrm{std}\left( \frac{\langle q, k \rangle}{\sqrt{d_h}} \right) = O(1)",
    plain="std(⟨q, k⟩ / √d_h) = O(1)",
    says="To stay numerically stable, all products of queries and keys are divided by the root of "
    "their dimension.",
    correction="It does so for queries and keys that are independent of each other. A query that "
    "points along its key still has the logit $\\sqrt{d_h}$ when both have entries of size one.",
    why="For random queries and keys the logits were drawn at widths 16 to 1024. Without the "
    "division their spread grows by {growth_unscaled:.1f} from the narrowest to the widest, with it "
    "by {growth_scaled:.2f}. A key that equals its query has a logit that grows by "
    "{growth_aligned:.1f} all the same: the sum of $d_h$ squares grows as $d_h$, not as its root.",
    checks=(
        Check(
            "growth_scaled",
            "claim",
            "near",
            1.0,
            within=0.05,
            label="growth of the spread from width 16 to 1024, scaled",
            because="The spread over a million products of 1,024 vectors is known to 1 percent; five times that.",
        ),
        Check(
            "growth_unscaled",
            "claim",
            "near",
            8.0,
            within=0.4,
            label="growth of the spread without the division",
            because="The root of 1024 / 16 is 8, to the same 5 percent.",
        ),
        Check(
            "growth_aligned",
            "reach",
            "at most",
            1.5,
            label="growth of the logit of a key that equals its query",
            because="One size at every width would be 1; half as much again is no longer one size.",
        ),
        Check(
            "growth_aligned_by_root",
            "correction",
            "near",
            1.0,
            within=0.05,
            label="that growth over √(1024/16)",
            because="A mean square over 1,024 vectors of 16 entries is known to 1 percent; five times that.",
        ),
    ),
    source="Vaswani et al. 2017, arXiv 1706.03762, section 3.2.1",
    seconds=0.1,
)
def measure(seed: int) -> Measured:
    """Draw queries and keys at four widths; the growth is that from the first to the last."""
    rng = np.random.default_rng([seed, 4001])
    spread: list[float] = []
    aligned: list[float] = []
    for width in WIDTHS:
        query, key = rng.standard_normal((2, COUNT, width))
        spread.append(float((query @ key.T).std()))
        aligned.append(float(np.square(query).sum(1).mean()))
    root = np.sqrt(WIDTHS)
    scaled, own = np.array(spread) / root, np.array(aligned) / root
    widths = tuple(float(width) for width in WIDTHS)
    return Measured(
        {
            "growth_scaled": float(scaled[-1] / scaled[0]),
            "growth_unscaled": spread[-1] / spread[0],
            "growth_aligned": float(own[-1] / own[0]),
            "growth_aligned_by_root": float(own[-1] / own[0] / (root[-1] / root[0])),
        },
        Picture(
            "width of the head",
            "logit",
            {
                "spread, scaled": (widths, tuple(scaled.tolist())),
                "spread, not scaled": (widths, tuple(spread)),
                "key equal to the query, scaled": (widths, tuple(own.tolist())),
            },
            x_log=True,
            y_log=True,
        ),
    )
