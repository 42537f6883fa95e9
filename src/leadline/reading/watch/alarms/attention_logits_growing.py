"""G05: the logits of attention grow steadily and have left the range in which softmax mixes.

The law: of n independent normal logits with standard deviation s, softmax spreads over many keys while
s < sqrt(2 log n), and falls onto a handful above (the freezing of Derrida's random energy model, 1981): 2.6
for 32 keys, 4.0 for 3,000. A head may sharpen on purpose, which ends soon above that; logits that are twice as
far and still rise run away, until the gradient through softmax is gone. They grow where the
weights of queries and keys do (Wortsman et al. 2023, arXiv 2309.14322; Zhai et al. 2023, arXiv 2303.06296).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from leadline.reading.show.wording import layer_ranges
from leadline.reading.watch.alarm import Alarm, Evidence, alarm, good_until
from leadline.reading.watch.history import History
from leadline.reading.watch.robust import (
    WINDOW,
    Floats,
    panel,
    place_of,
    round_to,
    slope,
    steadiness,
)
from leadline.record.rows.finding import Finding

SPREAD = 8.0
"""Standard deviation over the keys: twice the freezing point of 3,000 keys. Healthy runs came to 4.6."""
STEADY = 0.6
"""Kendall's tau over the last samples."""
TIMES = 1.5
"""Growth over the last samples, as their slope says; over the later half of them the root of it."""


@alarm(
    "G05",
    "attention-logits-growing",
    severity="serious",
    needs=("attention.logit_std",),
    summary="Looks for attention logits that rise steadily beyond where softmax mixes.",
    why="Softmax then picks one key for every query, its gradient fades or jumps, and the loss comes apart.",
    is_not="Heads that become sharp on purpose: their logits stop growing.",
    do_now="Lower the learning rate of queries and keys, norm queries and keys (QK-norm), or clip their "
    "weights (QK-clip).",
    sources=(
        "https://arxiv.org/abs/2309.14322",
        "https://arxiv.org/abs/2303.06296",
        "https://arxiv.org/abs/2507.20534",
    ),
)
def attention_logits_growing(history: History, alarm: Alarm) -> Iterator[Finding]:
    """Ask every layer for level, steadiness and growth."""
    measured = panel(history.by_layer("attention.logit_std"))
    if measured is None or measured.steps[-1] != history.step:
        return
    last = measured.values[:, -1]
    high = last >= SPREAD
    grow = np.ones(len(last))
    for row in np.flatnonzero(high):
        grow[row] = _growth(measured.steps, measured.logs[row])
        high[row] = grow[row] >= TIMES and _goes_on(measured.steps, measured.logs[row])
    if not high.any():
        return
    top = int(np.argmax(np.where(high, last, 0.0)))
    stack = measured.sites[top].stack
    layers = place_of(measured.rows(high).sites, stack)
    series = history.series["attention.logit_std"][measured.sites[top]]
    since = _first_above(series.steps, series.values, SPREAD)
    before = int(series.steps[max(int(np.searchsorted(series.steps, since)) - 1, 0)])
    evidence = [
        Evidence("standard deviation of the logits", round_to(float(last[top])), f"below {SPREAD:g}",
                 "twice the freezing point of softmax"),
        Evidence(f"growth over {len(measured.steps)} samples", round_to(float(grow[top])), 1.0, "a head "
                 "that has settled"),
    ]  # fmt: skip
    entropy = history.series.get("attention.entropy", {}).get(measured.sites[top])
    if entropy is not None and len(entropy):
        past = float(np.median(entropy.tail(WINDOW).values))
        if entropy.last < past:
            evidence.append(Evidence("entropy of the weights", round_to(entropy.last), round_to(past),
                                     "the run's own past"))  # fmt: skip
    yield alarm.warning(
        f"The attention logits of {layer_ranges(layers)} grow: their spread is {last[top]:.3g} and was "
        f"{series.at(int(measured.steps[0])):.3g} at step {measured.steps[0]}.",
        step=history.step,
        since=since,
        quantity="attention.logit_std",
        stack=stack,
        layers=layers,
        sublayer=measured.sites[top].point,
        evidence=evidence,
        cause="the weights of queries and keys grow: their learning rate is too large and no norm holds them",
        do_now="Lower the learning rate (of queries and keys, where they have their own). For the next "
        f"run norm queries and keys (QK-norm). Up to step {good_until(before)} softmax was not frozen.",
    )


def _goes_on(steps: NDArray[np.int64], logs: Floats) -> bool:
    """Whether the logits rise steadily, and still in the later half of the samples."""
    later = len(steps) // 2
    still = _growth(steps[later:], logs[later:])
    return steadiness(logs) >= STEADY and still >= math.sqrt(TIMES)


def _growth(steps: NDArray[np.int64], logs: Floats) -> float:
    return math.exp(min(slope(steps, logs) * float(steps[-1] - steps[0]), 700.0))


def _first_above(steps: NDArray[np.int64], values: Floats, level: float) -> int:
    """The first step of the stretch above a level that lasts until now."""
    below = np.flatnonzero(~(values >= level))
    return int(steps[0 if not len(below) else min(int(below[-1]) + 1, len(steps) - 1)])
