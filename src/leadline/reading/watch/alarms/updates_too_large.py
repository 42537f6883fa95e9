"""G06: updates of the weights are many times larger than before, in all layers or in one beside the others.

The ratio of an update to its weights follows the learning rate, and rises with it during warm-up. So a jump
is counted only as far as the rate does not explain it. In all layers: the median over the writes is 6 times
its past. In one: a write is 20 times its past while the median has not moved by 3.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from leadline.reading.show.wording import layer_ranges
from leadline.reading.watch.alarm import Alarm, Evidence, alarm, good_until
from leadline.reading.watch.history import History
from leadline.reading.watch.robust import Departure, LayerPanel, change, panel, place_of, round_to
from leadline.record.rows.finding import Finding

TIMES = 6.0
"""Times the past, median over the writes. Healthy runs came to 5.3, while they began to learn."""
SPREADS = 5.0
UNEXPLAINED = 1.3
"""Times what the learning rate has risen by."""
ONE = 20.0
"""Times the past of one write. Healthy runs came to 6.8."""
OTHERS = 3.0
"""Times their past, at most, while one write jumps alone."""


@alarm(
    "G06",
    "updates-too-large",
    severity="warning",
    needs=("weights.update_ratio",),
    summary="Looks for updates that are many times larger, beside their weights, than before.",
    why="The loss is a straight line only near the weights: updates that are several times longer leave "
    "that range, and the next gradients are of another place.",
    is_not="Warm-up of the learning rate, which explains the growth; or biases that start at 0.",
    do_now="Lower the learning rate or clip the gradient.",
    sources=("https://arxiv.org/abs/2304.13013", "https://arxiv.org/abs/1706.02677"),
)
def updates_too_large(history: History, alarm: Alarm) -> Iterator[Finding]:
    """Look at all layers together, then at one that jumps alone."""
    measured = panel(history.by_layer("weights.update_ratio"))
    if measured is None or measured.steps[-1] != history.step:
        return
    jump = change(measured)
    faster = _rate_factor(history)
    last = measured.values[:, -1]
    if (
        jump.factor >= TIMES
        and jump.deviation >= SPREADS
        and jump.factor / max(faster, 1.0) >= UNEXPLAINED
    ):
        high = jump.factors >= jump.factor
        words = f"Updates of the weights are {jump.factor:.0f} times as large as before"
        more = f", the learning rate {faster:.1f} times" if faster >= UNEXPLAINED else ""
        yield _said(history, alarm, measured, jump, high, f"{words}{more}.")
        return
    alone = (jump.factors >= ONE * max(faster, 1.0)) & (jump.deviations >= SPREADS)
    if alone.any() and jump.factor < OTHERS:
        worst = int(np.argmax(np.where(alone, jump.factors, 0.0)))
        yield _said(
            history, alarm, measured, jump, alone,
            f"The update of {measured.sites[worst]} is {last[worst]:.2g} of its weights, "
            f"{jump.factors[worst]:.0f} times as large as before, while other layers are as they were.",
        )  # fmt: skip


def _rate_factor(history: History) -> float:
    """How many times the past the learning rate is."""
    rate = history.of_run("train.rate")
    measured = None if rate is None else panel([rate])
    return 1.0 if measured is None else change(measured).factor


def _said(
    history: History,
    alarm: Alarm,
    measured: LayerPanel,
    jump: Departure,
    high: np.ndarray,
    verdict: str,
) -> Finding:
    worst = measured.rows(high)
    stack = worst.sites[int(np.argmax(jump.factors[high]))].stack
    layers = place_of(worst.sites, stack)
    value, usual = float(worst.values[:, -1].max()), float(np.median(jump.usual[high]))
    return alarm.warning(
        f"{verdict[:-1]} ({layer_ranges(layers)}).",
        step=history.step,
        since=jump.since,
        quantity="weights.update_ratio",
        stack=stack,
        layers=layers,
        evidence=[
            Evidence("update over weights", round_to(value), round_to(usual), "the run's own past")
        ],
        cause="the learning rate is too large for these gradients, or the second moment is too old for them",
        do_now="Lower the learning rate now, or clip the gradient. If the loss rises, go back to a "
        f"checkpoint of step {good_until(jump.before)} or earlier.",
    )
