"""G10: the loss has not fallen for half of the run, while the learning rate was as it was.

The slope of medians of ten updates (Theil and Sen) over the last half of the run says how far the
loss fell. A run at the end of its schedule is flat by right, and so is one whose loss has nearly gone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from leadline.reading.watch.alarm import Alarm, Evidence, alarm
from leadline.reading.watch.history import History
from leadline.reading.watch.robust import round_to, slope
from leadline.record.rows.finding import Finding

STRETCH = 300
"""Updates, at least: many models stay on a plateau for a hundred before they begin to learn."""
ENTRIES = 30
"""Losses in that stretch, at least."""
FALL = 0.01
"""Of the loss, over the stretch."""
RATE = 0.5
"""Of the highest learning rate: below it the schedule makes the loss flat."""
GONE = 0.05
"""Of the first losses: a loss below has nowhere to fall."""
FIRST = 5
"""Losses whose median is where the run began."""
POINTS = 60
"""So many medians are enough for a slope."""
MOST = 6000
"""Of more updates evenly spaced ones are taken: this is asked after every sample of a long run."""


@alarm(
    "G10",
    "loss-flat",
    severity="note",
    needs=("train.loss",),
    summary="Looks for a loss that has not fallen for half of the run, and at least 300 updates.",
    why="Nothing is learned any more, and every update costs what it cost before.",
    is_not="The end of a schedule, a loss that has come down to where the data allow no less, or a plateau "
    "before a model finds out how a task works.",
    do_now="See which layers get a gradient and move (leadline diagnose); try a larger learning rate, or "
    "another depth.",
    sources=("https://github.com/huggingface/peft/issues/1402",),
)
def loss_flat(history: History, alarm: Alarm) -> Iterator[Finding]:
    """Fit the last half of the run."""
    losses = history.of_run("train.loss")
    if losses is None or losses.last_step < 2 * STRETCH:
        return
    begin = losses.last_step // 2
    recent = losses.tail(len(losses) // 2 + 1)
    steps, values = recent.steps, recent.values
    inside = steps > begin
    if int(inside.sum()) < ENTRIES or not np.isfinite(values[inside]).all():
        return
    places = np.flatnonzero(inside)
    places = places[:: max(1, len(places) // MOST)]
    pieces = np.array_split(places, min(POINTS, len(places) // 5))
    level = float(np.median(values[places]))
    first = float(np.median(losses.head(FIRST).values))
    fit = slope(
        [float(np.median(steps[one])) for one in pieces],
        [float(np.median(values[one])) for one in pieces],
    )
    fall = -fit * (losses.last_step - begin)
    if abs(level) <= GONE * abs(first) or abs(fall) > FALL * abs(level) or _is_ending(history):
        return
    yield alarm.warning(
        f"The loss has not fallen since step {begin}: {level:.3g}.",
        step=history.step,
        since=begin,
        quantity="train.loss",
        evidence=[
            Evidence(f"fall of the loss in {losses.last_step - begin} updates", round_to(fall),
                     f"above {round_to(FALL * abs(level)):g}", "1 % of the loss"),
        ],
        cause="a model that cannot learn more of these data, weights that do not move, or a learning rate "
        "that is far too small or too large",
    )  # fmt: skip


def _is_ending(history: History) -> bool:
    """Whether the learning rate has come down, as schedules do."""
    rate = history.of_run("train.rate")
    return rate is not None and rate.last < RATE * float(np.max(rate.values))
