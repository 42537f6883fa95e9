"""G08: tokens have become one vector in some layer, and stay so.

The mean cosine of all pairs of tokens is 1 where all are the same. Many models come near to it in their first
updates, when they learn the frequencies of the symbols first, and leave it again; one that stays can learn
nothing else, because no gradient tells its tokens apart (Noci et al. 2022, arXiv 2206.03126). Some trained models
have a large common part in all tokens and do well (Ethayarajh 2019, arXiv 1909.00512): what was so
at the first sample is not said.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from leadline.reading.show.wording import layer_ranges
from leadline.reading.watch.alarm import Alarm, Evidence, alarm, good_until
from leadline.reading.watch.history import History, Series
from leadline.reading.watch.robust import LEAST_SAMPLES, is_early, place_of, round_to
from leadline.record.rows.finding import Finding

EQUAL = 0.01
"""1 - cosine."""
FALL = 0.3
"""Of 1 - cosine at the first sample, at most: tokens have become more alike in this run."""
LASTING = 60
"""Updates for which it has to last, and at least `LEAST_SAMPLES` samples."""


@alarm(
    "G08",
    "tokens-becoming-equal",
    severity="serious",
    needs=("tokens.cosine",),
    summary="Looks for layers in which all tokens have become one vector and stay so.",
    why="The layers above see one token, and layers below get hardly any gradient: the model can learn the "
    "frequencies of the symbols and nothing else.",
    is_not="The first updates of a model, in which it learns these frequencies first; or a trained model "
    "whose tokens have much in common from the first sample on.",
    do_now="Use warm-up, pre-norm or a residual that weighs branches less with depth; this run hardly "
    "recovers.",
    sources=("https://arxiv.org/abs/2206.03126", "https://arxiv.org/abs/2103.03404"),
)
def tokens_becoming_equal(history: History, alarm: Alarm) -> Iterator[Finding]:
    """Name the layers of which no sample in the last `LASTING` updates tells tokens apart."""
    equal = [
        series
        for series in history.by_layer("tokens.cosine")
        if len(series) and series.last_step == history.step and _has_lasted(series)
    ]
    if not equal:
        return
    lowest = min(equal, key=lambda series: series.site.layer)
    layers = place_of((series.site for series in equal), lowest.site.stack)
    since = _since(lowest)
    earlier = lowest.steps[lowest.steps < since]
    good = good_until(int(earlier[-1])) if len(earlier) else 0
    back = (
        f"Go back to a checkpoint of step {good} or earlier, with" if good else "Start again with"
    )
    yield alarm.warning(
        f"The tokens after {layer_ranges(layers)} are one vector (mean cosine {lowest.last:.4f}) since "
        f"step {since}.",
        step=history.step,
        since=since,
        quantity="tokens.cosine",
        stack=lowest.site.stack,
        layers=layers,
        evidence=[
            Evidence("1 - mean cosine of the tokens", round_to(1.0 - lowest.last), f"above {EQUAL:g}",
                     "tokens that differ"),
        ],
        cause="attention averages more than the residual keeps apart: a deep post-norm model without "
        "warm-up, or a rate that was too large in the first updates",
        do_now=f"{back} warm-up or a smaller learning rate; or use pre-norm.",
    )  # fmt: skip


def _since(series: Series) -> int:
    """The first step of the stretch of equal tokens that lasts until now."""
    differ = np.flatnonzero(~(1.0 - series.values < EQUAL))
    at = int(differ[-1]) + 1 if len(differ) else 0
    return int(series.steps[min(at, len(series) - 1)])


def _has_lasted(series: Series) -> bool:
    if is_early(series) or not 1.0 - series.last < min(EQUAL, FALL * (1.0 - series.at(0))):
        return False
    recent = series.tail(max(LEAST_SAMPLES, LASTING))
    same = 1.0 - recent.values < EQUAL
    stretch = len(same) - (int(np.flatnonzero(~same)[-1]) + 1 if not same.all() else 0)
    begin = int(recent.steps[len(same) - stretch])
    return stretch >= LEAST_SAMPLES and series.last_step - begin >= LASTING
