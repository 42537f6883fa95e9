"""G11: the output logits drift as a whole, which softmax does not notice and half precision does.

log Z = log sum exp of the logits. Adding a number to all of them changes no probability, so nothing holds
them (Chowdhery et al. 2022, arXiv 2204.02311 add 1e-4 log^2 Z to the loss). bfloat16 has 8 bits: between 32
and 64 its numbers are 0.25 apart, which is a quarter of a nat in the loss of a token. A model that becomes
sure of its answers has a log Z that grows while its loss falls; that is right up to this size.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from leadline.reading.watch.alarm import Alarm, Evidence, alarm
from leadline.reading.watch.history import History
from leadline.reading.watch.robust import WINDOW, is_early, round_to, steadiness
from leadline.record.rows.finding import Finding

LARGE = 32.0
"""|log Z| from which on numbers of bfloat16 are a quarter of a nat apart. Healthy runs came to 17."""
STEADY = 0.6
"""Kendall's tau of |log Z| over the last samples, and over the later half of them."""


@alarm(
    "G11",
    "logits-drifting",
    severity="warning",
    needs=("output.log_z",),
    summary="Looks for output logits that move away from zero together.",
    why="Half precision rounds large logits: at 32 by a quarter of a nat, at 128 by a whole one.",
    is_not="Logits that grow because the model is sure of its answers, as long as they stay small.",
    do_now="Add a z-loss (1e-4 log^2 Z), or decay the output weights, and compute the loss in float32.",
    sources=("https://arxiv.org/abs/2204.02311", "https://arxiv.org/abs/2309.14322"),
)
def logits_drifting(history: History, alarm: Alarm) -> Iterator[Finding]:
    """Look at the size of log Z and whether it goes on."""
    log_z = history.of_run("output.log_z")
    if log_z is None or is_early(log_z) or log_z.last_step != history.step:
        return
    recent = np.abs(log_z.tail(WINDOW).values)
    if not np.isfinite(recent).all() or recent[-1] < LARGE:
        return
    if min(steadiness(recent), steadiness(recent[len(recent) // 2 :])) < STEADY:
        return
    small = np.flatnonzero(np.abs(log_z.values) < LARGE)
    since = int(log_z.steps[min(int(small[-1]) + 1, len(log_z) - 1)] if len(small) else 1)
    yield alarm.warning(
        f"The output logits drift: log Z is {log_z.last:.3g} and was {log_z.at(history.step // 2):.3g} "
        f"at step {history.step // 2}.",
        step=history.step,
        since=since,
        quantity="output.log_z",
        evidence=[
            Evidence("|log Z|", round_to(float(recent[-1])), f"below {LARGE:g}",
                     "numbers of bfloat16 are 0.25 apart from there on"),
        ],
        cause="nothing in the loss holds the mean of the logits",
    )  # fmt: skip
