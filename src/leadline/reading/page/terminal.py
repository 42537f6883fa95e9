"""A record on one screen, or with `everything` every row; of a sweep its map."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from leadline.reading.map.cells import is_sweep
from leadline.reading.map.terminal import map_screen
from leadline.reading.map.trainability import trainability
from leadline.reading.watch.state_words import few_samples_of
from leadline.record.words.screen import Sentence
from leadline.record.words.text import record_screen

if TYPE_CHECKING:
    from leadline.record import Record
    from leadline.record.words.screen import Screen

__all__ = ["screen_of"]


def screen_of(record: Record, *, everything: bool = False) -> Screen:
    """Return the findings, the answer, the rows that change most, and where the numbers come from.

    Where nothing was found and most alarms had too few samples to look, that is said last.

    Of a sweep its map stands in place of the curves of its runs.
    """
    if not is_sweep(record):
        few = few_samples_of(record)
        screen = record.screen(everything=everything)
        return replace(screen, parts=(*screen.parts, Sentence(few, "dim"))) if few else screen
    map_parts = map_screen(trainability(record), everything=everything, titled=False).parts
    return record_screen(record, everything=everything, in_place_of_runs=map_parts)
