"""G01: a gauge is infinite or not a number.

A forward pass breaks from the first block on, so the lowest site is where it broke; a backward pass that
breaks alone does so from the last block down, so there it is the highest. Where every layer is finite and
the loss is not, it is the loss itself. What comes of a division by zero, as ratios do, breaks nothing and is
not looked at. The loss is read at every update, so it says since when; the layers are known of samples
only. A sample that comes later finds broken weights everywhere, and cannot say where it began.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from leadline.reading.watch.alarm import Alarm, Evidence, alarm, good_until
from leadline.reading.watch.history import History, Series
from leadline.reading.watch.robust import level_and_spread
from leadline.record.rows.finding import Finding
from leadline.record.rows.site import RUN

FORWARD = ("update.norm", "stream.norm", "stream.largest")
BACKWARD = ("gradient.stream", "gradient.parameters")
OF_THE_RUN = ("train.loss", "output.log_z", "train.gradient_norm")
PAST = 50
"""Losses before it was lost, of which most are as usual."""
LEAST_LOSSES = 10
SPREADS, SHARE = 6.0, 0.1
"""A loss is as usual up to so many spreads, or such a share, above the median."""
BEHIND_WRITES = 1_000
"""Stands for the end of a block, behind all of its writes."""


@alarm(
    "G01",
    "gauge-not-finite",
    severity="serious",
    needs=(),
    summary="Looks for a loss, a stream, an update or a gradient that is infinite or not a number.",
    why="Every later update is made of it: the weights are lost from this step on.",
    is_not="A skipped step of a loss scaler in half precision, which has no update and no reading; or one "
    "batch that the loop leaves out.",
    do_now="Stop, go back to the last checkpoint before it, and lower the learning rate or clip.",
    sources=("https://pytorch.org/docs/stable/notes/amp_examples.html",),
)
def not_finite(history: History, alarm: Alarm) -> Iterator[Finding]:
    """Name the place that broke first, and the first step of it."""
    broken = list(_broken(history))
    if not broken:
        return
    since = min(_since(series) for series in broken)
    if since < history.step and any(series.site != RUN for series in broken):
        yield _too_late(history, alarm, since)
        return
    first = _first(broken, _stacks(history))
    title = history.quantities[first.quantity].title
    is_run = first.site == RUN
    where = "" if is_run else f" at {first.site}"
    when = f" since step {since}" if is_run else f" at step {history.step}"
    whole = is_run and any(name in history for name in FORWARD)
    is_backward = first.quantity in BACKWARD
    yield alarm.warning(
        f"{title} is {first.last}{where}{when}{', while every layer is finite' if whole else ''}.",
        step=history.step,
        since=since,
        quantity=first.quantity,
        stack=None if is_run else first.site.stack,
        layers=() if is_run else (first.site.layer,),
        sublayer=first.site.point if first.site.sublayer is not None else None,
        evidence=[Evidence(title, str(first.last), "a finite number", "arithmetic")],
        cause="the loss itself: targets, a mask that leaves no token, or a logarithm of 0"
        if whole
        else f"an overflow or a division by zero in the {'backward' if is_backward else 'forward'} "
        "pass, or weights that an earlier update has broken",
        do_now=f"{_back(history, since)} Then look at the batch of step {since}; lower the learning rate or clip the "
        "gradient.",
    )


def _too_late(history: History, alarm: Alarm, since: int) -> Finding:
    """Say that it is broken everywhere, and how to see where it begins."""
    return alarm.warning(
        f"The loss is not finite since step {since}; at step {history.step}, the next sample, the layers "
        "are not finite either.",
        step=history.step,
        since=since,
        quantity="train.loss",
        evidence=[Evidence("loss", "not finite", "a finite number", "arithmetic")],
        cause="an overflow or a division by zero; where it began was not sampled, and by now every update "
        "has spread it",
        do_now=f"{_back(history, since)} To see where it begins, go on from there with every=1.",
    )


def _back(history: History, since: int) -> str:
    good = good_until(_last_usual(history, since))
    if not good:
        return "Stop and start again: later weights are broken."
    return (
        f"Stop and go back to a checkpoint of step {good} or earlier: later weights may be broken."
    )


def _last_usual(history: History, since: int) -> int:
    """The last step before it whose loss was as usual: a loss may climb for updates before it is lost."""
    losses = history.of_run("train.loss")
    if losses is None:
        return since - 1
    losses = losses.until(since - 1).tail(PAST)
    values = losses.values
    if len(values) < LEAST_LOSSES or not np.isfinite(values).all():
        return since - 1
    level, noise = level_and_spread(values)
    usual = np.flatnonzero(values <= level + max(SPREADS * noise, SHARE * abs(level)))
    return since - 1 if usual[-1] == len(values) - 1 else int(losses.steps[usual[-1]])


def _broken(history: History) -> Iterator[Series]:
    """The series that are not finite now."""
    for name in (*FORWARD, *BACKWARD, *OF_THE_RUN):
        for series in history.series.get(name, {}).values():
            if len(series) and series.last_step == history.step and not math.isfinite(series.last):
                yield series


def _stacks(history: History) -> list[str]:
    """The stacks in the order in which the model runs them, which is that of their first readings."""
    return list(dict.fromkeys(site.stack for sites in history.series.values() for site in sites))


def _first(broken: Sequence[Series], stacks: Sequence[str]) -> Series:
    """The place that broke first: by the forward pass, else by the run, else by the backward pass."""

    def depth(series: Series) -> tuple[int, int, int]:
        site = series.site
        write = BEHIND_WRITES if site.sublayer is None else site.sublayer
        return stacks.index(site.stack), site.layer, write

    forward = [one for one in broken if one.quantity in FORWARD]
    backward = [one for one in broken if one.quantity in BACKWARD]
    if forward:
        return min(forward, key=depth)
    losses = [one for one in broken if one.quantity == OF_THE_RUN[0]]
    if losses:
        return losses[0]
    if backward:
        return max(backward, key=depth)
    return min(broken, key=lambda one: OF_THE_RUN.index(one.quantity))


def _since(series: Series) -> int:
    """The first step of the stretch without a finite value that lasts until now."""
    finite = np.flatnonzero(np.isfinite(series.values))
    return int(series.steps[0 if not len(finite) else int(finite[-1]) + 1])
