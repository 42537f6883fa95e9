"""Short paths are said to escape the collapse that long ones undergo.

Read as: in a network with skips, a path of few hops keeps more of the differences between tokens than
one through all layers. Measured as in the paper: the mean of |res Y| / |Y| over drawn paths Y of every
length, with the patterns of the forward pass.

Source: Dong, Cordonnier, Loukas 2021, arXiv 2103.03404.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

DEPTH, WIDTH, HEADS, TOKENS, SAMPLES = 8, 32, 4, 10, 8


@claim(
    "short-paths-avoid-collapse",
    group="collapse",
    notes=("deep-dive",),
    title="Short paths do not undergo the collapse of the deep network",
    formula=r"\frac{\| \mathrm{res}(Y_1) \|}{\| Y_1 \|} \gg \frac{\| \mathrm{res}(Y_L) \|}{\| Y_L \|}",
    plain="‖res(Y₁)‖/‖Y₁‖ ≫ ‖res(Y_L)‖/‖Y_L‖ for paths Y_l of length l",
    says="Skips bring in many short paths, the shortest of which is the input itself. These do not go "
    "through the severe loss of rank of the deep network.",
    correction="",
    why="Paths of every length were drawn in a network of {depth:.0f} layers with skips. The input has "
    "{input:.2f} of its size in differences between tokens, a path of one hop {one:.2f}, a path through all "
    "layers {all:.1e}. Every hop averages once more, so what a path keeps falls with its length.",
    checks=(
        Check(
            "ratio",
            "claim",
            "at least",
            10.0,
            label="relative residual of one hop over that of all hops",
            because="Severe is read as at least tenfold.",
            log=True,
        ),
        Check(
            "one",
            "claim",
            "at least",
            0.1,
            label="relative residual of a path of one hop",
            because="Not collapsed is read as a residual of at least a tenth.",
        ),
        Check(
            "kept",
            "claim",
            "near",
            0.0,
            within=1e-9,
            label="path of no hop against the input, relative residual",
            because="The path of length 0 is the input: an identity.",
        ),
    ),
    seconds=0.6,
    source="Dong, Cordonnier, Loukas 2021, arXiv 2103.03404",
)
def measure(seed: int) -> Measured:
    """Draw paths of every length with Leadline's decomposition."""
    import numpy as np

    import leadline
    from leadline.claims.collapse._stacks import attention_network, residual, stream

    model = attention_network(
        seed, depth=DEPTH, width=WIDTH, heads=HEADS, connection="identity", placement="none"
    )
    inputs = stream(seed, tokens=TOKENS, width=WIDTH)
    sampled = leadline.paths(model, inputs, logits=False, samples=SAMPLES, seed=seed).sampled
    assert sampled is not None
    found = [float("nan") if one is None else one for one in sampled.residual]
    x = inputs[0].numpy()
    whole = float(np.linalg.norm(residual(x)) / np.linalg.norm(x))
    lengths = tuple(float(l) for l in range(len(found)))
    return Measured(
        {
            "depth": float(DEPTH),
            "input": whole,
            "one": found[1],
            "all": found[-1],
            "ratio": found[1] / found[-1],
            "kept": found[0] / whole - 1.0,
        },
        Picture(
            "hops",
            "relative residual of a path",
            {"drawn paths": (lengths, tuple(found))},
            y_log=True,
        ),
    )
