"""G02: the loss stands far above its own recent past, in one update or as a level.

    spike   (L - median of the 30 updates before it) / noise
    rise    (median of the last 10 updates - lowest such median of the last 200) / noise
    noise   of one update: from the differences of neighbours in the last 60, or for a spike the spread of the
            30 where that is more

Each update since the sample before is looked at, for losses are read at every update. The noise is at least
2 % of the level and 0.001: a loss that has come down to 0.0001 may double.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from leadline.reading.watch.alarm import Alarm, Evidence, alarm, good_until
from leadline.reading.watch.history import History, Series
from leadline.reading.watch.robust import (
    LEAST_STEPS,
    NORMAL,
    Floats,
    level_and_spread,
    round_to,
    running_median,
)
from leadline.record.rows.finding import Finding

SPIKE = 8.0
"""Noises above the level. Of 51 healthy runs 49 had at most 5.5; in two the loss did spike."""
RISE = 4.0
"""Noises of one update. Healthy runs had at most 2.9."""
PAST = 30
"""Updates to which a spike is compared."""
RECENT = 10
"""Updates whose median is the level of a rise."""
LONG = 200
"""Updates in which the lowest level is looked for."""
NOISE = 60
"""Updates of which the noise is taken."""
LEAST_SHARE = 0.02
LEAST_NATS = 1e-3


@alarm(
    "G02",
    "loss-spiking",
    severity="warning",
    needs=("train.loss",),
    summary="Looks for a loss far above its own recent past, in one update or as a level.",
    why="A spike from which the loss does not return costs everything that was learned since the last "
    "checkpoint before it.",
    is_not="The noise of small batches, which the past of the run shows; or other data from this step on.",
    do_now="Lower the learning rate or clip the gradient; if the loss does not come back, go back to a "
    "checkpoint before it and skip the batches of the spike.",
    sources=("https://arxiv.org/abs/2204.02311", "https://arxiv.org/abs/2304.13013"),
)
def loss_spiking(history: History, alarm: Alarm) -> Iterator[Finding]:
    """Look at the updates since the last sample; a spike is said before a rise."""
    losses = history.of_run("train.loss")
    if losses is None or losses.last_step < LEAST_STEPS or len(losses) <= PAST:
        return
    recent = losses.tail(LONG + NOISE)
    if not np.isfinite(recent.values).all():
        return
    found = _spike(recent, new=_new_updates(history, losses)) or _rise(recent)
    if found is None:
        return
    verdict, since, before, evidence = found
    yield alarm.warning(
        verdict,
        step=history.step,
        since=since,
        quantity="train.loss",
        evidence=[evidence],
        cause="updates that are too long for where the weights stand now, or a bad batch",
        do_now=f"Lower the learning rate or clip the gradient. If the loss does not come back, go back to "
        f"a checkpoint of step {good_until(before)} or earlier, and skip the batches since.",
    )


def _new_updates(history: History, losses: Series) -> int:
    """How many losses have come since the sample before this one."""
    sampled = history.of_run("train.rate") or history.of_run("train.gradient_norm")
    if sampled is None or len(sampled) < 2:
        return 1
    before = int(sampled.tail(2).steps[0])
    return int((losses.tail(LONG).steps > before).sum()) or 1


def _least(level: float) -> float:
    return LEAST_SHARE * abs(level) + LEAST_NATS


def _noise(values: Floats) -> float:
    """The standard deviation of one update, whatever the level does."""
    return NORMAL * float(np.median(np.abs(np.diff(values)))) / math.sqrt(2.0)


def _spike(losses: Series, *, new: int) -> tuple[str, int, int, Evidence] | None:
    values, steps = losses.values, losses.steps
    for at in range(max(PAST, len(values) - new), len(values)):
        level, around = level_and_spread(values[at - PAST : at])
        noise = max(around, _noise(values[max(0, at - NOISE) : at]), _least(level))
        height = (values[at] - level) / noise
        if height >= SPIKE:
            what = (
                f"The loss is {values[at]:.3g} at step {steps[at]}, after {level:.3g} in the "
                f"{PAST} updates before."
            )
            evidence = Evidence(
                "loss above its past, in noises of one update", round_to(float(height)), f"at most {SPIKE:g}",
                f"median of {PAST} updates",
            )  # fmt: skip
            return what, int(steps[at]), int(steps[at - 1]), evidence
    return None


def _rise(losses: Series) -> tuple[str, int, int, Evidence] | None:
    values, steps = losses.values, losses.steps
    levels = running_median(values[-LONG:], RECENT)
    if len(levels) <= RECENT:
        return None
    noise = _noise(values[-NOISE:])
    lowest = int(np.argmin(levels))
    height = (levels[-1] - levels[lowest]) / max(noise, _least(float(levels[lowest])))
    if height < RISE or steps[-1] < LEAST_STEPS:
        return None
    # levels[i] is the median of values[i : i + RECENT] of the last LONG ones
    at = int(steps[-LONG:][lowest + RECENT - 1])
    what = (
        f"The loss rises: {levels[-1]:.3g} in the last {RECENT} updates, after {levels[lowest]:.3g} "
        f"around step {at}."
    )
    evidence = Evidence(
        "rise of the loss, in noises of one update", round_to(float(height)), f"at most {RISE:g}",
        f"lowest median of {RECENT} updates",
    )  # fmt: skip
    return what, at, at, evidence
