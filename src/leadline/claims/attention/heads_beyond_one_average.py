"""Several heads can express more than one weighted average.

One head gives every token an average of the value vectors with one set of weights: a point of their
convex hull. Two heads average different features with different weights. Two tokens with the
values (0, 0) and (1, 1): a head for the first feature that looks at the first token and a head for
the second that looks at the second give (0, 1); averages of the values are (t, t), and the nearest
lies at sqrt(1/2). Measured with Leadline's own attention, its weights set by hand, and by how far
the heads of a trained model differ (Jensen-Shannon divergence, probe `attention`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from leadline.claims.attention._trained import TRAINED
from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

SHARP = 60.0


@claim(
    "heads-beyond-one-average",
    group="attention",
    notes=("deep-dive",),
    title="Several heads express more than one weighted average can",
    formula=r"[P_1 V_1, P_2 V_2] \neq P [V_1, V_2] \; \mathrm{for\ every\ stochastic}\ P",
    plain="[P₁V₁, P₂V₂] ≠ P [V₁, V₂] for every stochastic P",
    says="Each head may look at another part of the input, so several heads can represent functions "
    "that are more complex than a simple weighted average.",
    correction="",
    why="One head moves every token to an average of the values. Two heads with sharp, different "
    "patterns were set by hand: their output lies {distance_two_heads:.3f} away from every average "
    "of the values, where geometry says 0.707; one head lies {distance_one_head} away. In a trained "
    "model the heads of a layer do look at different places: their patterns diverge by "
    "{divergence:.2f} nats in the mean of the layers.",
    checks=(
        Check(
            "distance_two_heads",
            "claim",
            "near",
            0.5**0.5,
            within=1e-9,
            label="distance of two heads from every average of the values",
            because="The point (0, 1) lies at the root of 1/2 from the line (t, t); the weights are "
            "within e^-30 of 0 and 1.",
        ),
        Check(
            "distance_one_head",
            "claim",
            "at most",
            1e-12,
            label="the same for one head",
            because="One head gives an average of the values, to float64 rounding.",
            log=True,
        ),
        Check(
            "divergence",
            "claim",
            "at least",
            0.05,
            label="divergence of the heads of a trained layer, nats",
            because="0 means that all heads do the same; windows of text move it by about 0.01.",
            over="mean",
        ),
    ),
    seconds=0.02,
    needs=(TRAINED,),
)
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Set the weights of an attention of two tokens by hand, for one head and for two."""
    import torch

    from leadline.claims.attention._models import branch_of
    from leadline.parts import Transformer
    from leadline.parts.branches import Run

    # Four features: two values, which are read, and two marks by which a token is found.
    x = torch.tensor([[[0.0, 0, 1, 0], [1, 1, 0, 1]]], dtype=torch.float64)
    distances = []
    for heads in (1, 2):
        model = Transformer(
            depth=1,
            width=4,
            heads=heads,
            vocabulary=2,
            context=2,
            attention="multihead(causal=false)",
        )
        branch = branch_of(model, "attention")
        with torch.no_grad():
            for weight in branch.parameters():
                weight.zero_()
            query, key, value = branch.qkv.weight.split(4)
            query[:, 2:] = SHARP
            # With two heads of width 2, rows 0 and 1 are the first head's, 2 and 3 the second's.
            key[0, 2] = 1.0
            key[2 if heads == 2 else 1, 3 if heads == 2 else 2] = 1.0
            value[0, 0] = value[2 if heads == 2 else 1, 1] = 1.0
            branch.output.weight[0, 0] = branch.output.weight[1, 2 if heads == 2 else 1] = 1.0
            first = branch(x, Run())[0, 0, :2].numpy()
        values = x[0, :, :2].numpy()
        along = values[1] - values[0]
        share = float(np.clip((first - values[0]) @ along / (along @ along), 0, 1))
        distances.append(float(np.linalg.norm(first - values[0] - share * along)))
    divergence = trials[TRAINED.name]["pre"]["head_divergence"]
    return Measured(
        {
            "distance_one_head": distances[0],
            "distance_two_heads": distances[1],
            "divergence": float(np.mean(divergence)),
        }
    )
