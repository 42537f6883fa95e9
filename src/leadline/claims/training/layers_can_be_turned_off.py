"""Some layers can effectively be turned off, with f(x) close to 0.

The card says two things: that some layers of a residual network can be turned off, and that this
means f(x) = 0 or nearly so. The claim is the first: in a trained pre-norm model of 12 layers the
layer that is missed least costs less than 0.05 nats. The reach is the second. Without skip the
comparison is at 2 layers, where both forms train. Leaving a layer out hands its input on (the
ablation of `measure`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture
from leadline.claims.training._cells import cell

SKIP = cell("pre", 12)
SKIP_2, NONE_2 = cell("pre", 2), cell("no skip", 2, steps=600)
FREE = (
    "0.05 nats are about a twelfth of what the model has learned; the loss of the same model "
    "on other examples differs by more."
)


@claim(
    "layers-can-be-turned-off",
    group="training",
    notes=("card",),
    title="Some layers can be turned off",
    formula=r"f_l(x) \approx 0 \; \Rightarrow \; x_{l+1} \approx x_l",
    plain="f(x) ≈ 0 for some layers",
    says="With residual connections some layers can effectively be turned off: f(x) is about 0.",
    correction="Some layers of a trained pre-norm model can be left out almost for nothing, "
    "although what they write is not small. Others cannot. Without skip a layer is missed "
    "more than with it.",
    why="From a trained pre-norm model of 12 layers one layer at a time was left out. The least "
    "missed costs {least:.3f} nats, the most missed {most:.2f}. Yet the smallest write of any "
    "layer is {smallest:.2f} of the stream's length: no layer writes nothing. In trained models of "
    "2 layers the least missed costs {none:.2f} nats without skip and {two:.2f} with it.",
    checks=(
        Check(
            "least", "claim", "at most", 0.05, label="loss without the least missed layer, minus "
            "the loss", because=FREE,
        ),
        Check(
            "smallest", "reach", "at most", 0.05, label="smallest update over stream of a layer",
            because="About 0 is read as a twentieth of the stream's length.",
        ),
        Check(
            "most", "correction", "at least", 0.05, label="the same of the most missed layer",
            because=FREE,
        ),
        Check(
            "missed", "correction", "at least", 1.0,
            label="cost of the least missed layer, no skip over skip, 2 layers",
            because="Missed more is a cost above that with skip: a ratio above 1.",
        ),
    ),
    seconds=0.01,
    needs=(SKIP, SKIP_2, NONE_2),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """What leaving one layer out costs."""
    without = [float(value) for value in trials[SKIP.name]["without"]]
    writes = [max(map(float, pair)) for pair in trials[SKIP.name]["updates"]]
    none, two = (min(map(float, trials[one.name]["without"])) for one in (NONE_2, SKIP_2))
    layers = tuple(float(layer) for layer in range(1, len(without) + 1))
    return Measured(
        {
            "least": min(without),
            "most": max(without),
            "smallest": min(writes),
            "none": none,
            "two": two,
            "missed": none / two,
        },
        Picture(
            "layer left out",
            "rise of the loss, nats",
            {"pre-norm, 12 layers": (layers, tuple(without))},
        ),
    )
