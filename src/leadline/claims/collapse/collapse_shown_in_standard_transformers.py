"""The paper is said to have verified the collapse in standard Transformers by detailed experiments.

That is a statement about trained models of 2021 (BERT, ALBERT, XLNet) and the paper's own runs.
"""

from __future__ import annotations

from leadline.claims.catalog import uncheckable

uncheckable(
    "collapse-shown-in-standard-transformers",
    group="collapse",
    notes=("deep-dive",),
    title="The paper verified the collapse in standard Transformers",
    says="The paper on the loss of rank in pure attention is said to have confirmed the phenomenon in "
    "standard Transformer architectures by theory and detailed experiments.",
    why="It is about the paper's own experiments on trained models of its time, whose weights do not come "
    "with Leadline. With such a model at hand, `leadline reproduce rank-collapse MODEL` follows it as "
    "trained and with skips and MLPs switched off, which is the paper's experiment.",
)
