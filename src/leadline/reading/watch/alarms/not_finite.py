"""G01: a gauge is infinite or not a number."""

from __future__ import annotations

import math
from collections.abc import Iterator

from leadline.reading.watch.alarm import Alarm, Evidence, alarm
from leadline.reading.watch.history import History
from leadline.record.rows.finding import Finding
from leadline.record.rows.site import RUN


@alarm(
    "G01",
    "gauge-not-finite",
    severity="serious",
    needs=(),
    summary="Looks for the first gauge that is infinite or not a number.",
    why="Every later update is made of it: the weights are lost from this step on.",
    is_not="A skipped step of a loss scaler in half precision, which has no update and no reading.",
    do_now="Stop, go back to the last checkpoint before it, and lower the learning rate or clip.",
    sources=("https://pytorch.org/docs/stable/notes/amp_examples.html",),
)
def not_finite(history: History, alarm: Alarm) -> Iterator[Finding]:
    """Name the quantity and the lowest layer that broke first."""
    broken = [
        series
        for sites in history.series.values()
        for series in sites.values()
        if len(series)
        and series.last_step == history.step
        and not math.isfinite(series.last)
        # A ratio of zero over zero is not a number and breaks nothing.
        and history.quantities[series.quantity].lives_on != "sublayer"
    ]
    if not broken:
        return
    first = min(broken, key=lambda one: (one.site == RUN, one.site.layer, one.quantity))
    title = history.quantities[first.quantity].title
    where = "" if first.site == RUN else f" at {first.site}"
    yield alarm.warning(
        f"{title} is {first.last}{where} at step {history.step}.",
        step=history.step,
        since=history.step,
        quantity=first.quantity,
        stack=None if first.site == RUN else first.site.stack,
        layers=() if first.site == RUN else (first.site.layer,),
        evidence=[Evidence(title, str(first.last), "a finite number", "arithmetic")],
        cause="an overflow, or a division by zero, in the forward or the backward pass",
    )
