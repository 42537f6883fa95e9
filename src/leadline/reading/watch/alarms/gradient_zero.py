"""G15: every gradient is zero, to the last bit.

An exact zero needs no threshold: nothing that is trained has any part in the loss, or a factor of zero stands
before all of it, such as both factors of an adapter at zero. Two samples in a row are asked.
"""

from __future__ import annotations

from collections.abc import Iterator

from leadline.reading.watch.alarm import Alarm, Evidence, alarm
from leadline.reading.watch.history import History
from leadline.record.rows.finding import Finding

SAMPLES = 2
"""Samples without any gradient, one after the other."""


@alarm(
    "G15",
    "gradient-zero",
    severity="serious",
    needs=("gradient.parameters",),
    summary="Looks for a run in which every gradient is exactly zero.",
    why="Nothing is learned, however long the run goes on.",
    is_not="One layer without a gradient, which is another alarm; or gradients that are small.",
    do_now="Look for detach() and no_grad() between the trained parameters and the loss, and for adapters of "
    "which both factors are zero.",
    sources=("https://github.com/huggingface/peft/issues/1402",),
)
def gradient_zero(history: History, alarm: Alarm) -> Iterator[Finding]:
    """Look at every group of parameters."""
    every = [
        series
        for series in history.series.get("gradient.parameters", {}).values()
        if len(series) and series.last_step == history.step
    ]
    recent = [series.tail(SAMPLES) for series in every]
    if not every or any(len(one) < SAMPLES or (one.values != 0).any() for one in recent):
        return
    yield alarm.warning(
        "Every gradient is zero: nothing that is trained has a part in the loss.",
        step=history.step,
        since=int(min(one.steps[0] for one in recent)),
        quantity="gradient.parameters",
        evidence=[Evidence("gradient of the parameters", 0.0, "above 0", "arithmetic")],
        cause="an operation that cuts the gradient, a loss that does not depend on what is trained, or a "
        "factor of zero before it",
    )
