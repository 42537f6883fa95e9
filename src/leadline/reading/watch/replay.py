"""Ask the alarms about a run that is over, sample by sample, as if it were going on.

What they say is what a watch would have said at the time: no alarm sees a later sample.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING

from leadline.reading.watch.alarm import Standing, ask_alarms
from leadline.reading.watch.history import History

if TYPE_CHECKING:
    from leadline.record import Finding, Quantity, Reading

__all__ = ["replay"]


def replay(readings: Iterable[Reading], quantities: Iterable[Quantity]) -> list[Finding]:
    """Return the warnings of one run in their order, each with the step at which it was said."""
    history, standing = History(quantities), Standing()
    warnings: list[Finding] = []
    by_step = sorted(readings, key=lambda reading: reading.step)
    for _, sample in groupby(by_step, key=lambda reading: reading.step):
        history.add(sample)
        warnings += standing.new(ask_alarms(history))
    return warnings
