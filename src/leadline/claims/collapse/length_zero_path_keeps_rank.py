"""The path that skips every layer passes the input on, and with it its rank.

Z_0 of Leadline's decomposition, which runs the model's own forward pass, is the input itself.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

DEPTH, WIDTH, HEADS, TOKENS = 12, 16, 2, 8


@claim(
    "length-zero-path-keeps-rank",
    group="collapse",
    notes=("deep-dive",),
    title="The path of length 0 keeps the rank of the input",
    formula=r"Z_0 = X, \quad \mathrm{rank} Z_0 = \mathrm{rank} X",
    plain="Z₀ = X, rank Z₀ = rank X",
    says="The extreme case of a short path has length 0: it hands the input to the output directly and "
    "keeps its rank and its residual whole.",
    correction="",
    why="The forward pass of {depth:.0f} layers with skips was taken apart by path length. The component "
    "of length 0 differs from the input by {apart} and has rank {rank:.0f}, as the input does. That it "
    "arrives does not say that the output keeps it: other paths may cancel it.",
    checks=(
        Check(
            "apart",
            "claim",
            "at most",
            1e-14,
            label="component of length 0 against the input",
            because="It is a sum of the input and zeros: a few eps at most.",
        ),
        Check(
            "lost",
            "claim",
            "near",
            0.0,
            within=0.5,
            label="rank of the input minus rank of the component",
            because="Ranks are whole numbers.",
        ),
    ),
    seconds=0.1,
)
def measure(seed: int) -> Measured:
    """Take Z_0 out of a forward pass."""
    import numpy as np

    from leadline.claims.collapse._components import components, path_network
    from leadline.claims.collapse._stacks import stream

    model = path_network(seed, depth=DEPTH, width=WIDTH, heads=HEADS, connection="identity")
    inputs = stream(seed, tokens=TOKENS, width=WIDTH)
    x = inputs[0].numpy()
    lengths, _, _ = components(model, inputs)
    ranks = [int(np.linalg.matrix_rank(one, rtol=1e-9)) for one in (x, lengths[0])]
    return Measured(
        {
            "depth": float(DEPTH),
            "rank": float(ranks[1]),
            "apart": float(np.linalg.norm(lengths[0] - x) / np.linalg.norm(x)),
            "lost": float(ranks[0] - ranks[1]),
        }
    )
