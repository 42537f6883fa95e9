"""The residual path carries the original signal forward.

For blocks x + F(LN(x)) the stream at the end is what entered plus all writes,

    x_L = x_0 + u_1 + ... + u_n

so the path itself carries x_0 without a change: the claim. A reader takes it that the signal is
then still what one sees at the end; that is its reach: the cosine of x_L with x_0 after 48
untrained pre-norm blocks, and under post-norm the factor that the norms leave of x_0, the product of
1/s over all of them (LayerNorm divides the sum, and x_0 in it, by s).
"""

from __future__ import annotations

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

DEPTH, LENGTH = 48, 16
SIZES = {"depth": DEPTH, "width": 64, "heads": 4}
HALF = "Still there is read as at least half."


@claim(
    "skip-carries-the-signal",
    group="algebra",
    notes=("summary",),
    title="The residual path carries the original signal forward unchanged",
    formula=r"x_L = x_0 + \sum_l F_l(x_l)",
    plain="x_L = x_0 + Σ F_l(x_l)",
    says="In the forward pass the residual connection hands on the original signal directly, past "
    "all complicated transformations.",
    correction="The path of Pre-LN carries $x_0$ as one term of a sum, unchanged. How much of the sum "
    "it is depends on the writes: they drown it in deep stacks unless they are scaled down with depth. "
    "Under Post-LN every norm divides it as well.",
    why="In 48 untrained pre-norm blocks the stream at the end equals the stream at the start plus all "
    "writes, to {missed}. But the sum points elsewhere: its cosine with the start is {cosine}, and with "
    "writes divided by the root of twice the depth {scaled}. With post-norm the divisions by the norms "
    "leave {post} of the original signal.",
    checks=(
        Check(
            "missed", "claim", "at most", 1e-12,
            label="miss of x_L = x_0 + all writes",
            because="An identity; 96 additions round by 96 half eps at most.",
            log=True,
        ),
        Check(
            "cosine", "reach", "at least", 0.5, label="cosine of x_L with x_0, pre-norm",
            because=HALF, over="mean",
        ),
        Check(
            "post", "reach", "at least", 0.5, label="factor left of x_0, post-norm",
            because=HALF, over="mean", log=True,
        ),
        Check(
            "scaled", "correction", "at least", 0.5,
            label="cosine of x_L with x_0, writes / √(2L)",
            because=HALF, over="mean",
        ),
        Check(
            "by_hand", "correction", "near", 1.0, within=1e-6,
            label="cosine, by the probe over by hand",
            because="Two routes to one number in float64; the rest is rounding.",
        ),
        Check(
            "divided", "correction", "near", 1.0, within=1e-9,
            label="writes times √(2L) over what the branches give",
            because="The factor that the text names; the rest is rounding.",
        ),
    ),
    seconds=0.7,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """The sum of all writes, the cosine with what entered, and what norms leave of it."""
    from torch.nn.functional import cosine_similarity

    from leadline.claims.algebra._networks import built, tokens_of, writes_of
    from leadline.instruments.passes.measurement import measure as measured

    designs = {
        "pre": {},
        "scaled": {"connection": "weighted(alpha=depth)"},
        "post": {"placement": "post"},
    }
    models = {name: built({**SIZES, **fields}, seed=seed) for name, fields in designs.items()}
    batch = tokens_of(models["pre"], length=LENGTH, seed=seed)
    seen = writes_of(models["pre"], batch)
    total = seen.states[0]
    for update in seen.updates:
        total = total + update
    missed = float((total - seen.states[-1]).norm() / seen.states[-1].norm())
    cosines = {
        name: np.asarray(measured(models[name], batch, probes="memory")["memory.cosine"]).tolist()
        for name in ("pre", "scaled")
    }
    scaled = writes_of(models["scaled"], batch)
    twice = [
        cosines[name][-1] / float(cosine_similarity(one.states[-1], one.states[0], dim=-1).mean())
        for name, one in (("pre", seen), ("scaled", scaled))
    ]
    added = scaled.states[1] - scaled.states[0]
    post = writes_of(models["post"], batch)
    left = 1.0
    for x, update in zip(post.states, post.updates, strict=False):
        # The geometric mean over the tokens of what one norm divides by.
        left /= float((x + update).std(-1, correction=0).log().mean().exp())
    sites = tuple(float(site) for site in range(DEPTH + 1))
    return Measured(
        {
            "missed": missed,
            "cosine": cosines["pre"][-1],
            "scaled": cosines["scaled"][-1],
            "post": left,
            "by_hand": max(twice, key=lambda one: abs(one - 1.0)),
            "divided": float(added.norm() / scaled.updates[0].norm()) * (2.0 * DEPTH) ** 0.5,
        },
        Picture(
            "layer",
            "cosine with what entered",
            {
                "pre-norm": (sites, tuple(cosines["pre"])),
                "pre-norm, writes / √(2L)": (sites, tuple(cosines["scaled"])),
            },
        ),
    )
