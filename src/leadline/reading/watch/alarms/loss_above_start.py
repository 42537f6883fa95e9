"""G13: the loss stands above where the run began.

The first loss is that of the untouched weights, read before the first update; where losses are read more
rarely, the validation loss before the first one is. A level half as high again, the
median of the last ten losses, with none of them below the first, is a run that has only done harm. Where losses
scatter by more than a quarter of the first one, a single batch says little about where it began, and ten
times of it are asked.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from leadline.reading.watch.alarm import Alarm, Evidence, alarm
from leadline.reading.watch.history import History, Series
from leadline.reading.watch.robust import NORMAL, round_to
from leadline.record.rows.finding import Finding

LEAST = 20
"""Updates before anything is said: a rate that is right may do harm in its first updates."""
RECENT = 10
"""Losses whose median is the level."""
TIMES = 1.5
"""Times the first loss. Of ln V, which a fresh model begins with, it is worse than any guess."""
SCATTER = 0.25
"""Standard deviation of one loss over the first one, up to which `TIMES` is enough."""
TIMES_OF_SCATTERED = 10.0
NOISE = 60
"""Losses of which the scatter is taken."""


@alarm(
    "G13",
    "loss-above-start",
    severity="serious",
    needs=("train.loss",),
    summary="Looks for a loss that stands far above where the run began.",
    why="The run has only done harm so far: the weights it began with were better.",
    is_not="A loss that is noisy from batch to batch; or one whose terms or weights change with the steps.",
    do_now="Stop and begin again with a learning rate ten times smaller, with warm-up and clipping.",
    sources=("https://arxiv.org/abs/1706.02677",),
)
def loss_above_start(history: History, alarm: Alarm) -> Iterator[Finding]:
    """Compare the last losses with the first one."""
    losses = history.of_run("train.loss")
    if losses is None or losses.last_step < LEAST or len(losses) < RECENT:
        return
    recent = losses.tail(NOISE)
    values, first = recent.values, _first(history, losses)
    if not (first > 0 and np.isfinite(values).all()):
        return
    level = float(np.median(values[-RECENT:]))
    scatter = NORMAL * float(np.median(np.abs(np.diff(values)))) / np.sqrt(2.0)
    times = TIMES if scatter <= SCATTER * first else TIMES_OF_SCATTERED
    if level < times * first or values[-RECENT:].min() <= first:
        return
    below = np.flatnonzero(values <= first)
    at = int(below[-1]) + 1 if len(below) else 0
    since = int(recent.steps[at] if at else losses.steps[0])
    yield alarm.warning(
        f"The loss is {level:.3g} and began at {first:.3g}: the run has only done harm so far.",
        step=history.step,
        since=since,
        quantity="train.loss",
        evidence=[
            Evidence(f"median of the last {RECENT} losses", round_to(level, 3),
                     f"below {round_to(first, 3):g}", "the first loss of the run"),
        ],
        cause="a learning rate that is far too large, no warm-up, or a loss with the wrong sign",
    )  # fmt: skip


def _first(history: History, losses: Series) -> float:
    """The loss of the untouched weights."""
    validation = history.of_run("validation.loss")
    if validation is not None and validation.steps[0] < losses.steps[0]:
        return float(validation.values[0])
    return float(losses.values[0])
