"""A layer that has learned nothing hands on its input: which layers do?

The note draws this from F = 0: the layer then leaves x alone (the claim, measured on pre-norm
blocks with their branches set to zero). A reader carries it to a layer that has learned nothing
yet, and to the Post-LN block of the same note, x' = LN(x + F(x)): these are its reach. An untrained
branch is not zero; LN(x) is not x, but LN(LN(x)) = LN(x) up to eps, with gains of 1 and no
shift, so a post-norm block with F = 0 leaves alone what has already gone through such a norm. ReZero: Bachlechner et al. 2020, arXiv 2003.04887.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

DEPTH, LENGTH, EPS = 4, 16, 1e-5
SIZES = {"depth": DEPTH, "width": 64, "heads": 4}


@claim(
    "shortcut-is-a-fallback",
    group="algebra",
    notes=("shortcuts",),
    title="A layer that has learned nothing just hands on its input",
    formula=r"F_l \approx 0 \;\Rightarrow\; x_{l+1} = x_l",
    plain="nothing learned ⇒ x_{l+1} = x_l",
    says="The shortcut is a safety net: a layer that has learned nothing simply gives back the x "
    "that came in.",
    correction="It does so where its branch is zero and no norm follows the addition. A branch "
    "with an ordinary random start is not zero; one that is multiplied by a gain that starts at 0 "
    "(ReZero) is. After a norm (Post-LN) even a zero branch changes x, but for streams that "
    "are already normed, by a norm with gains of 1 and no shift.",
    why="With branches of zero, pre-norm blocks change the stream by {zero} of its length. But a "
    "layer that has learned nothing yet is a random one: in untrained blocks a write is {untrained} "
    "times as long as the stream. And a post-norm block whose branch is zero still norms: the "
    "first one changes its stream by {post} of its length, the later ones by {settled}.",
    checks=(
        Check(
            "zero", "claim", "at most", 0.0,
            label="change by pre-norm blocks with F = 0",
            because="x + 0 = x is exact in floating-point arithmetic.",
        ),
        Check(
            "untrained", "reach", "at most", 0.1,
            label="write over stream, untrained block",
            because="Handing on the input means to change it by a tenth of its length at most.",
        ),
        Check(
            "post", "reach", "at most", 0.1,
            label="change by the first post-norm block with F = 0",
            because="Handing on the input means to change it by a tenth of its length at most.",
        ),
        Check(
            "rezero", "correction", "at most", 0.0,
            label="change by untrained ReZero blocks",
            because="A gain of 0 makes every write exactly 0.",
        ),
        Check(
            "settled", "correction", "at most", EPS,
            label="change by later post-norm blocks with F = 0",
            because="A norm divides a normed stream by sqrt(1 + eps) at most, so it changes it by "
            "less than its eps of 1e-5.",
        ),
        Check(
            "by_hand", "correction", "near", 1.0, within=1e-6,
            label="write over stream, by the probe over by hand",
            because="Two routes to one number in float64; the rest is rounding.",
        ),
    ),
    source="Bachlechner et al. 2020, arXiv 2003.04887 (a gain that starts at 0)",
    seconds=0.2,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Change of the stream by zero branches, by untrained ones, and under post-norm."""
    from torch import Tensor

    from leadline.claims.algebra._networks import built, emptied, tokens_of, writes_of
    from leadline.instruments.passes.measurement import measure as measured

    def moved(states: list[Tensor], start: int, end: int) -> float:
        return float((states[end] - states[start]).norm() / states[start].norm())

    fresh = built(SIZES, seed=seed)
    batch = tokens_of(fresh, length=LENGTH, seed=seed)
    record = measured(fresh, batch, probes="update")
    shares = [one.value for one in record.select("update.ratio", statistic="mean")]
    seen = writes_of(fresh, batch)
    pairs = zip(seen.states, seen.updates, strict=False)
    hand = [float((u.norm(dim=-1) / x.norm(dim=-1)).mean()) for x, u in pairs]
    pre = writes_of(emptied(fresh), batch).states
    rezero = writes_of(built({**SIZES, "connection": "rezero"}, seed=seed), batch).states
    post = writes_of(emptied(built({**SIZES, "placement": "post"}, seed=seed)), batch).states
    return Measured(
        {
            "zero": moved(pre, 0, -1),
            "untrained": sum(shares) / len(shares),
            "post": moved(post, 0, 2),
            "rezero": moved(rezero, 0, -1),
            "by_hand": sum(shares) / sum(hand),
            "settled": max(moved(post, at, at + 2) for at in range(2, 2 * DEPTH, 2)),
        }
    )
