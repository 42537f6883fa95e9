"""G14: updates leave weights as they are, to the last bit.

Exact zeros need no threshold: an optimizer that does not hold the parameters, a learning rate of 0, or weights
in half precision that swallow an update below half a unit in their last place. Two samples in a row are
asked, because schedules with warm-up begin with a rate of 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from leadline.reading.show.wording import layer_ranges
from leadline.reading.watch.alarm import Alarm, Evidence, alarm
from leadline.reading.watch.history import History, Series
from leadline.reading.watch.robust import place_of
from leadline.record.rows.finding import Finding, Severity
from leadline.record.rows.site import OUTSIDE

SAMPLES = 2
"""Samples without any change, one after the other."""


@alarm(
    "G14",
    "weights-not-moving",
    severity="serious",
    needs=("weights.update_ratio",),
    summary="Looks for trained weights that updates leave as they are, to the last bit.",
    why="Nothing is learned there, however long the run goes on.",
    is_not="Frozen parameters, which are not read; a rate of 0 in the first update of a warm-up; layers "
    "that get no gradient, which is another alarm.",
    do_now="Build the optimizer after the model has been wrapped, from the parameters that are trained, and "
    "look at the learning rate of every group.",
    sources=("https://github.com/huggingface/accelerate/issues/2665",),
)
def weights_not_moving(history: History, alarm: Alarm) -> Iterator[Finding]:
    """Look for exact zeros, in all weights or in some layers."""
    every = [
        series
        for series in history.series.get("weights.update_ratio", {}).values()
        if len(series) >= SAMPLES and series.last_step == history.step
    ]
    still = [one for one in every if _is_still(one) and _gradient(history, one) != 0]
    if not still:
        return
    if len(still) == len(every):
        yield _said(history, alarm, still, "No weight of the model moves", "serious", ())
        return
    inside = [one for one in still if one.site.stack != OUTSIDE]
    stacks = dict.fromkeys(one.site.stack for one in inside)
    for stack in stacks:
        layers = place_of((one.site for one in inside), stack)
        which = [one for one in inside if one.site.stack == stack]
        words = f"Weights of {layer_ranges(layers)} do not move, while others do"
        yield _said(history, alarm, which, words, "warning", layers)


def _is_still(series: Series) -> bool:
    return bool((series.tail(SAMPLES).values == 0).all())


def _gradient(history: History, series: Series) -> float | None:
    """The gradient that an optimizer took there in the last sample; None where none was read."""
    gradient = history.series.get("gradient.parameters", {}).get(series.site)
    if gradient is None or not len(gradient) or gradient.last_step < series.last_step:
        return None
    return gradient.last


def _since(series: Series) -> int:
    moved = np.flatnonzero(series.values != 0)
    return int(series.steps[int(moved[-1]) + 1 if len(moved) else 0])


def _said(
    history: History,
    alarm: Alarm,
    still: Sequence[Series],
    words: str,
    severity: Severity,
    layers: tuple[int, ...],
) -> Finding:
    rate = history.of_run("train.rate")
    cause = (
        "an optimizer that does not hold these parameters, or weights in half precision and updates "
        "below half a unit in their last place"
    )
    do_now = ""
    others = any(
        one.last_step == history.step
        for one in history.series.get("gradient.parameters", {}).values()
    )
    if others and all(_gradient(history, one) is None for one in still):
        cause = "no optimizer that stepped holds these parameters"
        do_now = (
            "Give these parameters to the optimizer, or freeze them with requires_grad_(False)."
        )
    if rate is not None and rate.last == 0:
        cause, do_now = "a learning rate of 0", "Look at the schedule: the learning rate is 0."
    since = max(_since(one) for one in still)
    return alarm.warning(
        f"{words}: updates change nothing since step {since}.",
        step=history.step,
        since=since,
        quantity="weights.update_ratio",
        stack=still[0].site.stack if layers else None,
        layers=layers,
        evidence=[Evidence("update over weights", 0.0, "above 0", "arithmetic")],
        cause=cause,
        do_now=do_now,
        severity=severity,
    )
