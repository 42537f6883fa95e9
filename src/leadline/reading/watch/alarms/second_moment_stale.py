"""G04: gradients are many times larger than the second moment of the optimizer remembers.

RMS(g / sqrt(v)) is near 1 while v follows the squares of g. Where gradients grow faster than v, which
forgets in 1 / (1 - beta2) updates, it rises, and Adam's updates are as many times too long. Wortsman et al.
2023 (arXiv 2304.13013) saw loss spikes 1 to 8 updates after it passed 2.3. In small models with small batches
it often does so for one batch and nothing follows, so the median over all writes is taken, and compared with
the run's own past.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from leadline.reading.show.wording import layer_ranges
from leadline.reading.watch.alarm import Alarm, Evidence, alarm, good_until
from leadline.reading.watch.history import History
from leadline.reading.watch.robust import change, panel, place_of, round_to
from leadline.record.rows.finding import Finding

VALUE = 4.0
"""The median over the writes of RMS(g / sqrt(v)). One batch of text in healthy runs came to 13."""
TIMES = 8.0
"""Times the past. Healthy runs came to 7.3, and to 8.2 with a value of 2.9."""
SPREADS = 5.0


@alarm(
    "G04",
    "second-moment-stale",
    severity="warning",
    needs=("optimizer.surprise",),
    summary="Looks for gradients that are much larger than the optimizer's second moment remembers.",
    why="Adam divides by the root of the second moment: while it is too small, updates are too long, and "
    "the loss often spikes within the next updates.",
    is_not="One rare symbol in a table of embeddings, or one batch of rare examples: the median over all "
    "layers is asked.",
    do_now="Clip the gradient or the update (StableAdamW), lower beta2 to 0.95, or lower the learning rate.",
    sources=("https://arxiv.org/abs/2304.13013", "https://arxiv.org/abs/2506.04805"),
)
def second_moment_stale(history: History, alarm: Alarm) -> Iterator[Finding]:
    """Ask the median over all writes; name those that are furthest above."""
    measured = panel(history.by_layer("optimizer.surprise"))
    if measured is None or measured.steps[-1] != history.step:
        return
    rise = change(measured)
    last = measured.values[:, -1]
    median = float(np.median(last))
    if median < VALUE or rise.factor < TIMES or rise.deviation < SPREADS:
        return
    worst = measured.rows(last >= np.sqrt(median * last.max()))
    stack = measured.sites[int(np.argmax(last))].stack
    layers = place_of(worst.sites, stack)
    yield alarm.warning(
        f"Gradients are {median:.1f} times as large as the optimizer remembers, most at "
        f"{layer_ranges(layers)}: its updates are too long.",
        step=history.step,
        since=rise.since,
        quantity="optimizer.surprise",
        stack=stack,
        layers=layers,
        evidence=[
            Evidence("RMS(g / sqrt(v)), median of all writes", round_to(median),
                     round_to(float(np.median(rise.usual))), "the run's own past"),
            Evidence("of the highest write", round_to(float(last.max())), "near 1",
                     "Wortsman et al. 2023"),
        ],
        cause="gradients grow faster than the second moment follows: beta2 is high, or the data changed",
        do_now="Clip the gradient or the update, lower beta2 to 0.95, or lower the learning rate now. If "
        f"the loss spikes, go back to a checkpoint of step {good_until(rise.before)} or earlier.",
    )  # fmt: skip
