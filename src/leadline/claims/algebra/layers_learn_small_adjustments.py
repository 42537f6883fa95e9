"""With shortcut a layer only learns a small adjustment: how large are the writes of trained models?

The notes say that a residual layer learns a correction instead of rebuilding the whole, a small
adjustment. Measured is |u| / |x|, the write over the stream before it (probe `update`), in the two
small trained models of Leadline, on text of Python's library that a seed draws. The claim is that a
write does not rebuild: in the pre-norm model, the design that the notes recommend, it is smaller
than what was there. Its reach: that it is small (a tenth), and that the same holds for post-norm.
The two models are the same for every seed; only the text differs.
"""

from __future__ import annotations

from leadline.analysis.claim import Check, Picture
from leadline.claims._entry import Measured, claim

EXAMPLES, LENGTH = 8, 128


@claim(
    "layers-learn-small-adjustments",
    group="algebra",
    notes=("shortcuts", "textbook", "card"),
    title="With a shortcut a layer only learns a small adjustment",
    formula=r"\|F(x)\| \ll \|x\|",
    plain="‖F(x)‖ ≪ ‖x‖",
    says="Without shortcut every layer has to rebuild the representation; with it a layer only learns "
    "a correction, a small adjustment of what is there already.",
    correction="In a small trained pre-norm model every write is smaller than the stream, but of the "
    "same order; in the post-norm model some writes are larger than the stream that they are added "
    "to. That a layer learns a difference is how it is built; that the difference is small is not.",
    why="In a trained pre-norm model of 6 layers the writes are between {smallest} and {largest} times as "
    "long as the stream they are added to, {middle} in the mean: corrections, but no small ones. In its "
    "post-norm twin the largest write is {post} times as long as the stream: that layer does rebuild. "
    "(Two models, several texts: larger models may differ.)",
    checks=(
        Check(
            "largest", "claim", "at most", 1.0,
            label="largest write over stream, pre-norm",
            because="What adjusts and does not rebuild is smaller than what was there.",
            over="mean",
        ),
        Check(
            "middle", "reach", "at most", 0.1,
            label="mean write over stream, pre-norm",
            because="Small is read as a tenth of what was there.",
            over="mean",
        ),
        Check(
            "post", "reach", "at most", 1.0,
            label="largest write over stream, post-norm",
            because="What adjusts and does not rebuild is smaller than what was there.",
            over="mean",
        ),
        Check(
            "smallest", "correction", "at least", 0.1,
            label="smallest write over stream, pre-norm",
            because="Of the same order means more than a tenth of what was there.",
            over="mean",
        ),
    ),
    seconds=0.2,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """The share of every write in two trained models."""
    from leadline.lab import pair
    from leadline.lab.tasks import build_task
    from leadline.measurement import measure as measured

    ids = build_task(f"stdlib(length={LENGTH})").train(0, EXAMPLES, seed=seed).ids
    shares: dict[str, list[float]] = {}
    for name, load in (("pre", pair.pre), ("post", pair.post)):
        record = measured(load()[0], ids, probes="update")
        shares[name] = [one.value for one in record.select("update.ratio", statistic="mean")]
    writes = tuple(float(at) for at in range(1, len(shares["pre"]) + 1))
    return Measured(
        {
            "largest": max(shares["pre"]),
            "smallest": min(shares["pre"]),
            "middle": sum(shares["pre"]) / len(shares["pre"]),
            "post": max(shares["post"]),
        },
        Picture(
            "write",
            "length of the write over that of the stream",
            {
                "pre-norm": (writes, tuple(shares["pre"])),
                "post-norm": (writes, tuple(shares["post"])),
                "as large as the stream": (writes, (1.0,) * len(writes)),
            },
            faint=("as large as the stream",),
        ),
    )
