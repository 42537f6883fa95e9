"""With skips alone the lower bound is said to be kept layer by layer.

Read as |res X^l| >= |res X| at every layer. For the mean over the samples, which the figure draws,
it is so: the part "claim". The bound is about one input, where a reader expects it: single samples
fall below their start, by a fraction of a per cent, since no update was asked to be orthogonal to
anything.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check


@claim(
    "figure-lower-bound-at-every-layer",
    group="collapse",
    notes=("deep-dive",),
    title="With skips the lower bound of the theory is kept at every layer",
    formula=r"\| \mathrm{res}(X^l) \|_F \ge \| \mathrm{res}(X) \|_F \quad (l = 1, \dots, 12)",
    plain="‖res(X^l)‖_F ≥ ‖res(X)‖_F for l = 1, …, 12",
    says="The curve with skips alone shows that the identity path keeps attention from flattening the "
    "residual: the lower bound of the theory is preserved layer by layer.",
    correction="It is kept by the mean over the samples, not by every sample: the bound is a theorem only "
    "where updates do not point against the residual, and nothing makes them.",
    why="The mean over 32 samples never falls below its start (least ratio {mean:.4f}). Single samples do: "
    "the least is at {single:.4f} of its start, and {falling:.2f} of all steps go down. Random updates are "
    "nearly orthogonal to the residual, now on one side and now on the other, and their squares add up.",
    checks=(
        Check(
            "mean",
            "claim",
            "at least",
            1.0,
            label="smallest later mean over the first",
            because="A lower bound: no ratio is below 1.",
        ),
        Check(
            "single",
            "reach",
            "at least",
            1.0,
            label="smallest later value over the first, single samples",
            because="A lower bound: no ratio is below 1.",
        ),
        Check(
            "falling",
            "correction",
            "at least",
            0.02,
            label="share of steps that lower the residual of a sample",
            because="With some of 384 steps downwards nothing forbids them.",
        ),
    ),
    seconds=0.08,
)
def measure(seed: int) -> Measured:
    """The note's forward pass, sample by sample."""
    from leadline.claims.collapse._note_draw import sample_curves

    found = sample_curves(seed)["skip only"].double()
    mean = found.mean(1)
    return Measured(
        {
            "mean": float(mean[1:].min() / mean[0]),
            "single": float((found / found[0]).min()),
            "falling": float((found[1:] < found[:-1]).double().mean()),
        }
    )
