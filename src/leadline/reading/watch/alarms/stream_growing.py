"""G07: the residual stream grows without end, or comes near to the end of float16.

    times       |x_l| now over |x_l| at the first sample
    exponent    p of a growth like step^p since half of the updates: p doublings in the last half

A stream grows while a model learns, by factors of 10 to 100 from a small initialisation, and ever more slowly:
its exponent falls below 1. One that has grown a hundredfold and still doubles, or that grows with
an exponent of 3, runs away. Near 65,504 / 2 the next write may overflow in float16.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from leadline.reading.show.wording import layer_ranges
from leadline.reading.watch.alarm import Alarm, Evidence, alarm, good_until
from leadline.reading.watch.history import History, Series
from leadline.reading.watch.robust import WINDOW, is_early, place_of, round_to, slope, steadiness
from leadline.record.rows.finding import Finding
from leadline.record.rows.site import Site

TIMES = 100.0
"""Times the first sample. Healthy runs came to 70, in 500 updates from an embedding of 0.02."""
EXPONENT = 1.0
"""After growth by `TIMES`."""
FAST = 3.0
"""Exponent that is enough alone. Healthy runs came to 2.6, when they began to learn late."""
LEAST_STEPS = 100
"""Half of fewer updates is the beginning of the run."""
STEADY = 0.6
"""Kendall's tau over the last samples."""
FLOAT16_MAX = 65504.0
ROOM = 2.0
"""Times the largest value that float16 has left."""


@alarm(
    "G07",
    "stream-growing",
    severity="warning",
    needs=("stream.norm",),
    summary="Looks for a residual stream that grows ever faster, or that comes near to the end of float16.",
    why="Later writes drown in a stream that is too large, its gradient fades, and half precision rounds "
    "the writes off or overflows.",
    is_not="The growth of a stream while a model begins to learn, which slows down.",
    do_now="Lower the learning rate, or decay the weights that write to the stream; keep the stream in "
    "float32 or bfloat16.",
    sources=("https://arxiv.org/abs/2002.04745", "https://arxiv.org/abs/2312.16903"),
)
def stream_growing(history: History, alarm: Alarm) -> Iterator[Finding]:
    """Ask each site for its growth; then the largest values for their head room."""
    yield from _growing(history, alarm)
    yield from _near_the_end(history, alarm)


def _growing(history: History, alarm: Alarm) -> Iterator[Finding]:
    runaway: list[tuple[float, float, Series]] = []
    for series in history.by_layer("stream.norm"):
        if is_early(series) or series.last_step < LEAST_STEPS:
            continue
        if series.last_step != history.step or not _is_finite(series):
            continue
        times, exponent = _growth(series)
        fast = exponent >= FAST or (times >= TIMES and exponent >= EXPONENT)
        if fast and steadiness(series.tail(WINDOW).values) >= STEADY:
            runaway.append((times, exponent, series))
    if not runaway:
        return
    times, exponent, worst = max(runaway, key=lambda one: one[1])
    layers = place_of((series.site for *_, series in runaway), worst.site.stack)
    half = worst.last_step // 2
    since = _since(worst, 2 * worst.at(half))
    yield alarm.warning(
        f"The stream grows without end after {layer_ranges(layers)}: its norm is {worst.last:.3g}, and "
        f"was {worst.at(half):.3g} at step {half}.{_overflow(history, worst.site)}",
        step=history.step,
        since=since,
        quantity="stream.norm",
        stack=worst.site.stack,
        layers=layers,
        evidence=_evidence(times, exponent),
        cause="weights that write to the stream grow: the learning rate is too large and nothing holds them",
        do_now="Lower the learning rate now and decay the weights that write to the stream. If the loss "
        f"rises, go back to a checkpoint of step {good_until(since)} or earlier.",
    )  # fmt: skip


def _evidence(times: float, exponent: float) -> list[Evidence]:
    """The law that is broken: fast growth alone, or growth by `TIMES` that does not slow down."""
    fast = exponent >= FAST
    limit, source = (
        (FAST, "runs that stayed healthy") if fast else (EXPONENT, "growth that slows down")
    )
    doublings = Evidence("doublings in the last half of the run", round_to(exponent), f"below {limit:g}",
                         source)  # fmt: skip
    if fast:
        return [doublings]
    return [
        Evidence("stream norm over that of the first sample", round_to(times), f"below {TIMES:g}",
                 "runs that stayed healthy"),
        doublings,
    ]  # fmt: skip


def _growth(series: Series) -> tuple[float, float]:
    """Growth since the first sample, and its exponent since half of the updates."""
    first, (step, half) = series.at(0), series.sample(series.last_step // 2)
    if first <= 0 or half <= 0 or series.last <= 0:
        return 1.0, 0.0
    return series.last / first, math.log(series.last / half) / math.log(series.last_step / step)


def _since(series: Series, level: float) -> int:
    """The last step at which a series was not above a level."""
    low = np.flatnonzero(series.values <= level)
    return int(series.steps[int(low[-1]) if len(low) else 0])


def _is_finite(series: Series) -> bool:
    return bool(np.isfinite(series.tail(WINDOW).values).all())


def _overflow(history: History, site: Site) -> str:
    """When float16 would overflow, if the largest value goes on as it did."""
    largest = history.series.get("stream.largest", {}).get(site)
    if largest is None or len(largest) < WINDOW or not largest.last > 0:
        return ""
    recent = largest.tail(WINDOW)
    rate = slope(recent.steps, np.log(np.maximum(recent.values, 1e-30)))
    if largest.last >= FLOAT16_MAX or rate <= 0:
        return ""
    steps = math.log(FLOAT16_MAX / largest.last) / rate
    return f" float16 would overflow in about {steps:.0f} updates." if steps < 10_000 else ""


def _near_the_end(history: History, alarm: Alarm) -> Iterator[Finding]:
    near = [
        series
        for series in history.by_layer("stream.largest")
        if not is_early(series)
        and series.last_step == history.step
        and series.last > FLOAT16_MAX / ROOM
        and _is_finite(series)
        and steadiness(series.tail(WINDOW).values) >= STEADY
    ]
    if not near:
        return
    worst = max(near, key=lambda series: series.last)
    layers = place_of((series.site for series in near), worst.site.stack)
    yield alarm.warning(
        f"The largest value of the stream after {layer_ranges(layers)} is {worst.last:,.0f} and rises; "
        f"float16 ends at {FLOAT16_MAX:,.0f}.",
        step=history.step,
        since=_since(worst, FLOAT16_MAX / ROOM),
        quantity="stream.largest",
        stack=worst.site.stack,
        layers=layers,
        evidence=[
            Evidence("head room in float16", round_to(FLOAT16_MAX / worst.last), f"above {ROOM:g}",
                     "range of float16"),
        ],
        cause="a few features of the stream grow with training",
        do_now="In float16 the next updates would be infinite: keep the stream in bfloat16 or float32. If "
        "the learning rate was raised lately, lower it.",
    )  # fmt: skip
