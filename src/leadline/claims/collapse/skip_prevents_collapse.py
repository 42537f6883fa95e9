"""Attention with skip connections is said not to lose rank.

Read for the note's own experiment, the part "claim": skip only, the residual is kept. The sentence names
no conditions and is carried further: (a) the relative residual |res X| / |X|, which is what a norm passes
on, falls without norms, since the mean grows faster than the differences; (b) weights can undo the skip:
with P near the identity and W_V = -1 the update takes the stream away. With norms before the branches
the relative residual falls only slowly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture
from leadline.claims.collapse._note_figure import NOTE_FIGURE, curves

DEPTH, WIDTH, TOKENS = 48, 32, 10
SHARPNESS = 1000.0


@claim(
    "skip-prevents-collapse",
    group="collapse",
    notes=("deep-dive",),
    title="Attention with skip connections does not collapse",
    formula=r"X^{l+1} = X^l + \mathrm{SA}(X^l) \Rightarrow \mathrm{res}(X^L) \not\to 0",
    plain="X^{l+1} = X^l + SA(X^l) ⇒ res(X^L) does not vanish",
    says="With skip connections attention does not lose rank: the short paths keep the whole output "
    "from degenerating.",
    correction="At a random start the absolute residual is kept. The relative one, which a norm passes on, "
    "falls exponentially without norms and slowly with a norm before each branch; and there are weights "
    "for which the update cancels the skip.",
    why="In the note's experiment the residual after twelve layers is {kept:.3f} of the first. Without norms, "
    "over {depth:.0f} layers, the share of the residual in the stream falls to 10 to the power "
    "{relative:.1f}: the mean token grows faster than the differences. With norms before the branches it is "
    "10 to the power {normed:.2f}. If every token attends to itself and the values are negated, one layer "
    "leaves {cancelled} of the residual.",
    checks=(
        Check(
            "kept",
            "claim",
            "at least",
            0.9,
            label="residual after 12 layers over the first, note's experiment",
            because="Kept is read as at least nine tenths.",
        ),
        Check(
            "relative",
            "reach",
            "at least",
            -3.0,
            label="log₁₀ of the relative residual, 48 layers, no norm",
            because="Collapsed is read as a residual a thousand times below the stream.",
        ),
        Check(
            "cancelled",
            "reach",
            "at least",
            0.9,
            label="residual after one layer that attends to itself, W_V = -1",
            because="Kept is read as at least nine tenths.",
        ),
        Check(
            "normed",
            "correction",
            "at least",
            -3.0,
            label="log₁₀ of the relative residual, 48 layers, pre-norm",
            because="Collapsed is read as a residual a thousand times below the stream.",
        ),
        Check(
            "absolute",
            "correction",
            "at least",
            -0.3,
            label="change of log₁₀ residual, 48 layers, no norm",
            because="The absolute residual counts as kept if at least half of it is left.",
        ),
    ),
    seconds=0.5,
    needs=(NOTE_FIGURE,),
)
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """The note's curve, deep networks without and with norms, and a cancelling layer."""
    import numpy as np

    from leadline.claims.collapse._stacks import attention_network, residual, stream
    from leadline.instruments.collapse.measure import collapse

    logs = curves(trials, "true")["skip only"]
    x = stream(seed, tokens=TOKENS, width=WIDTH)[0]
    shape = {"depth": DEPTH, "width": WIDTH, "heads": 1, "connection": "identity"}
    bare = collapse(attention_network(seed, **shape), x)
    normed = collapse(attention_network(seed, **shape, norm="layernorm", placement="pre"), x)
    corners = np.eye(TOKENS)
    weights = np.exp(SHARPNESS * (corners - 1.0))
    own = weights / weights.sum(1, keepdims=True)
    after = corners - own @ corners
    sites = tuple(float(site) for site in range(DEPTH + 1))
    return Measured(
        {
            "depth": float(DEPTH),
            "kept": 10.0 ** (logs[-1] - logs[0]),
            "relative": float(bare.log10_relative[-1]),
            "absolute": float(bare.log10_residual[-1] - bare.log10_residual[0]),
            "normed": float(normed.log10_relative[-1]),
            "cancelled": float(np.linalg.norm(residual(after)) / np.linalg.norm(residual(corners))),
        },
        Picture(
            "layer",
            "log₁₀ of the relative residual",
            {
                "skip, no norm": (sites, tuple(map(float, bare.log10_relative))),
                "skip, pre-norm": (sites, tuple(map(float, normed.log10_relative))),
            },
        ),
    )
