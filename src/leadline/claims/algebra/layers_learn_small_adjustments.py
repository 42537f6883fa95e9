"""With shortcut a layer only learns a small adjustment: how large are the writes of trained models?

The notes say that a residual layer learns a correction instead of rebuilding the whole, a small
adjustment. Measured is |u| / |x|, the write over the stream before it (probe `update`, and by hand),
in the two small trained models of Leadline, on text of Python's library that a seed draws. The claim
has two halves, both for the pre-norm model, the design that the notes recommend: a write does not
rebuild, so it is smaller than what was there; and it is small, a tenth. Its reach is post-norm.
The two models are the same for every seed; only the text differs.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

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
    "These are two models and several texts: larger models may differ.",
    checks=(
        Check(
            "largest", "claim", "at most", 1.0,
            label="largest write over stream, pre-norm",
            because="What adjusts and does not rebuild is smaller than what was there.",
            over="mean",
        ),
        Check(
            "middle", "claim", "at most", 0.1,
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
        Check(
            "by_hand", "correction", "near", 1.0, within=1e-3,
            label="write over stream, by the probe over by hand",
            because="Two routes to one number in float32, whose rounding is far below a thousandth.",
        ),
    ),
    seconds=0.3,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """The share of every write in two trained models, by the probe and by hand."""
    import torch

    from leadline.experiments.gradient_flow.starts import seen_writes
    from leadline.instruments.passes.measurement import measure as measured
    from leadline.lab import pair
    from leadline.lab.tasks import build_task

    ids = build_task(f"stdlib(length={LENGTH})").train(0, EXAMPLES, seed=seed).ids
    shares: dict[str, list[float]] = {}
    twice: list[float] = []
    for name, load in (("pre", pair.pre), ("post", pair.post)):
        model = load()[0]
        record = measured(model, ids, probes="update")
        shares[name] = [one.value for one in record.select("update.ratio", statistic="mean")]
        with torch.no_grad(), seen_writes(model) as seen:
            model.stream(ids)
        twice += [
            share / float((u.norm(dim=-1) / x.norm(dim=-1)).mean())
            for share, x, u in zip(shares[name], seen.states, seen.updates, strict=False)
        ]
    writes = tuple(float(at) for at in range(1, len(shares["pre"]) + 1))
    return Measured(
        {
            "largest": max(shares["pre"]),
            "smallest": min(shares["pre"]),
            "middle": sum(shares["pre"]) / len(shares["pre"]),
            "post": max(shares["post"]),
            "by_hand": max(twice, key=lambda one: abs(one - 1.0)),
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
