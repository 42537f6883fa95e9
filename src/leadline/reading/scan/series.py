"""Checkpoints of one training run, in the order of their steps, with every gauge as a series.

Checkpoints are of one run where they stand in one folder, have steps that differ, and hold models
of one class and size. The others are a zoo, in which nothing is a change of anything.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from leadline.reading.watch.history import History, Series
from leadline.record.rows.site import RUN
from leadline.record.run.watching import LOSS

if TYPE_CHECKING:
    from leadline.reading.scan.checkpoints import ScannedCheckpoint
    from leadline.record import Record
    from leadline.record.rows.step_line import StepLine

__all__ = ["CheckpointSeries", "find_series"]


@dataclass(frozen=True, eq=False)
class CheckpointSeries:
    """The measured checkpoints of one training run."""

    name: str
    checkpoints: tuple[ScannedCheckpoint, ...]
    history: History
    loss: Series

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last step."""
        steps = [one.step or 0 for one in self.checkpoints]
        return steps[0], steps[-1]


def find_series(
    record: Record,
    checkpoints: Sequence[ScannedCheckpoint],
    lines: Mapping[str, Sequence[StepLine]],
) -> tuple[CheckpointSeries, ...]:
    """Return the training runs among the checkpoints of a scan, the longest first."""
    groups: defaultdict[tuple[str, tuple[str, float]], list[ScannedCheckpoint]] = defaultdict(list)
    for one in checkpoints:
        if one.measured and one.step is not None:
            groups[one.group, one.shape].append(one)
    found: list[CheckpointSeries] = []
    named = Counter(PurePath(group).name for group, _ in groups)
    for (group, _), members in groups.items():
        ordered = sorted(members, key=lambda one: one.step or 0)
        if len({one.step for one in ordered}) < max(2, len(ordered)):
            continue
        history = History(record.quantities.values())
        loss = Series(LOSS.name, RUN)
        for one in ordered:
            history.add_lines(lines.get(one.run, ()))
            loss.put(one.step or 0, one.loss)
        # Folders of one name are told apart by the whole path.
        name = PurePath(group).name if named[PurePath(group).name] == 1 else group
        name = name or group
        found.append(CheckpointSeries(name, tuple(ordered), history, loss))
    return tuple(sorted(found, key=lambda one: -len(one.checkpoints)))
