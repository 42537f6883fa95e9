"""G09: a layer gets hardly any gradient beside the others, and got its share before.

    share    |gradient of the layer's parameters| / that of the layer with most

A share that has fallen to a hundredth and to a tenth of what it was at the first samples says that the
gradient vanishes on its way; a gradient of exactly zero that something cuts it, as long as
other layers have one. Layers that start without a gradient by design (a gate or an output at zero) have no
share that could fall, and get time until `LEAST_STEPS`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from leadline.reading.show.wording import layer_ranges
from leadline.reading.watch.alarm import Alarm, Evidence, alarm
from leadline.reading.watch.history import History, Series
from leadline.reading.watch.robust import LEAST_STEPS, Floats, round_to
from leadline.record.rows.finding import Finding
from leadline.record.rows.site import OUTSIDE

SHARE = 0.01
"""Of the layer with the longest gradient. Healthy runs came down to 0.03."""
FALL = 0.1
"""Of the share at the first samples."""
SAMPLES = 5
"""So many samples in a row; and so many are the first."""
LEAST = 2 * SAMPLES


@alarm(
    "G09",
    "layer-not-learning",
    severity="serious",
    needs=("gradient.parameters",),
    summary="Looks for layers whose gradient has vanished beside that of other layers.",
    why="These layers stay as they are, and the model is as shallow as the layers that learn.",
    is_not="Layers that are frozen, which have no gradient to read; or a gate that starts at zero.",
    do_now="Use warm-up, pre-norm, or a smaller rate in the first updates; look for what cuts the gradient "
    "where it is exactly zero.",
    sources=("https://arxiv.org/abs/2002.04745", "https://arxiv.org/abs/2206.03126"),
)
def layer_not_learning(history: History, alarm: Alarm) -> Iterator[Finding]:
    """Compare layers of one stack, each with its own first samples."""
    series = [
        one
        for one in history.by_layer("gradient.parameters")
        if one.site.stack != OUTSIDE and one.last_step == history.step
    ]
    for stack in dict.fromkeys(one.site.stack for one in series):
        yield from _in_stack(history, alarm, stack, [o for o in series if o.site.stack == stack])


def _in_stack(
    history: History, alarm: Alarm, stack: str, series: list[Series]
) -> Iterator[Finding]:
    layers = sorted({one.site.layer for one in series})
    if len(layers) < 2 or min(len(one) for one in series) < LEAST or history.step < LEAST_STEPS:
        return
    first = _by_layer([one.head(SAMPLES) for one in series], layers)
    last = _by_layer([one.tail(SAMPLES) for one in series], layers)
    if first is None or last is None:
        return
    before, now = _shares(first), _shares(last)
    low = (now < SHARE).all(1) & (np.median(now, 1) < FALL * np.median(before, 1))
    cut = (last == 0).all(1)
    for chosen, words, cause in (
        (cut, "get no gradient at all", "a branch that no output depends on, or an operation that "
         "cuts the gradient"),
        (low & ~cut, "have stopped learning", "the gradient vanishes on its way down: tokens that have "
         "become equal, saturated attention, or a norm after the addition without warm-up"),
    ):  # fmt: skip
        if not chosen.any() or chosen.all():
            continue
        names = [layer for layer, one in zip(layers, chosen, strict=True) if one]
        share = float(np.median(now[chosen]))
        since = _since(series, layers, chosen) if share else int(series[0].steps[0])
        yield alarm.warning(
            f"The parameters of {layer_ranges(names)} {words}: their gradient is {share:.2g} of that "
            "of the layer with most.",
            step=history.step,
            since=since,
            quantity="gradient.parameters",
            stack=stack,
            layers=names,
            evidence=[
                Evidence("share of the longest gradient", round_to(share),
                         round_to(float(np.median(before[chosen]))), "the first samples of the run"),
            ],
            cause=cause,
            do_now="Start again with warm-up or a smaller rate in the first updates, or with pre-norm."
            if share else "Look for parameters that no output depends on, and for detach() or no_grad().",
        )  # fmt: skip
        return


def _by_layer(series: list[Series], layers: list[int]) -> Floats | None:
    """[layer, sample]: the norm over the writes of each layer; None where one is not finite."""
    rows = np.zeros((len(layers), len(series[0])))
    for one in series:
        rows[layers.index(one.site.layer)] += np.square(one.values)
    return np.sqrt(rows) if np.isfinite(rows).all() else None


def _shares(rows: Floats) -> Floats:
    return rows / np.maximum(rows.max(0, keepdims=True), 1e-30)


def _since(series: list[Series], layers: list[int], chosen: NDArray[np.bool_]) -> int:
    """The first step of the stretch in which these layers had less than a hundredth."""
    count = min(len(one) for one in series)
    rows = _by_layer([one.tail(count) for one in series], layers)
    if rows is None:
        return int(series[0].tail(SAMPLES).steps[0])
    low = (_shares(rows)[chosen] < SHARE).all(0)
    high = np.flatnonzero(~low)
    at = int(high[-1]) + 1 if len(high) else 0
    return int(series[0].tail(count).steps[min(at, count - 1)])
