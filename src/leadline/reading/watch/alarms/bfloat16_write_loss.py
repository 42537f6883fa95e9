"""G12: more and more of what layers write would be rounded away in a bfloat16 stream.

bfloat16 has 8 bits: a write below 1/512 of the entry that it is added to is lost. As a stream grows beside
its writes, that share grows. It is asked of the numbers as they are, in whatever format the run keeps its stream.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from leadline.reading.show.wording import layer_ranges
from leadline.reading.watch.alarm import Alarm, Evidence, alarm
from leadline.reading.watch.history import History
from leadline.reading.watch.robust import is_early, round_to
from leadline.record.rows.finding import Finding

LOST = 0.5
"""Of the write: more is lost than arrives."""
TIMES = 2.0
"""Times the first samples: what was so from the start is no matter of this run."""
SAMPLES = 5


@alarm(
    "G12",
    "bfloat16-write-loss",
    severity="note",
    needs=("update.bf16_loss",),
    summary="Looks for layers whose writes would mostly be rounded away in a bfloat16 stream.",
    why="In a bfloat16 stream these layers stop to matter, although their weights still move.",
    is_not="A stream in float32, which loses nothing: it is asked of the numbers, not of the format.",
    do_now="Keep the stream in float32, or hold its growth: weight decay, or a norm on the branch.",
    sources=("https://arxiv.org/abs/2010.06192",),
)
def bfloat16_write_loss(history: History, alarm: Alarm) -> Iterator[Finding]:
    """Ask the last samples of every write."""
    lost: list[tuple[float, float, int, int, str]] = []
    for series in history.by_layer("update.bf16_loss"):
        if is_early(series) or series.last_step != history.step or len(series) < 2 * SAMPLES:
            continue
        if series.last < LOST:
            continue
        now = float(np.median(series.tail(SAMPLES).values))
        first = float(np.median(series.head(SAMPLES).values))
        if now >= LOST and now >= TIMES * first and (series.tail(SAMPLES).values >= LOST).all():
            arrived = np.flatnonzero(series.values < LOST)
            at = int(arrived[-1]) + 1 if len(arrived) else 0
            since = int(series.steps[at])
            lost.append((now, first, since, series.site.layer, series.site.stack))
    if not lost:
        return
    now, first, since, _, stack = max(lost)
    layers = sorted({layer for *_, layer, place in lost if place == stack})
    yield alarm.warning(
        f"A bfloat16 stream would lose {now:.0%} of what {layer_ranges(layers)} write"
        f"{'s' if len(layers) == 1 else ''}, since step {since}.",
        step=history.step,
        since=since,
        quantity="update.bf16_loss",
        stack=stack,
        layers=layers,
        evidence=[
            Evidence("share of the write that is lost", round_to(now), round_to(first),
                     "the first samples of the run"),
        ],
        cause="the stream has grown beside what is written to it",
    )  # fmt: skip
