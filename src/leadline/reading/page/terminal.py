"""Records and comparisons in the terminal: one screen each, or with `everything` every row.

On a terminal a table fits its width. Into a pipe or a file it is plain text with every column in
full, however long the lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline.reading.compare.text import comparison_screen
from leadline.reading.map.cells import is_sweep
from leadline.reading.map.terminal import map_screen
from leadline.reading.map.trainability import trainability
from leadline.record.words.text import record_screen

if TYPE_CHECKING:
    from rich.console import Console

    from leadline.reading.compare.compare import Comparison
    from leadline.record import Record

__all__ = ["show_comparison", "show_record"]


def show_record(record: Record, console: Console, *, everything: bool = False) -> None:
    """Print the findings, the answer, the rows that change most, and where the numbers come from.

    Of a sweep its map stands in place of the curves of its runs.
    """
    in_place = None
    if is_sweep(record):
        training_map = trainability(record)
        in_place = map_screen(training_map, everything=everything, titled=False).parts
    record_screen(record, everything=everything, in_place_of_runs=in_place).show(console)


def show_comparison(comparison: Comparison, console: Console, *, everything: bool = False) -> None:
    """Print the answer, the rows in which records differ most, and what is not shared."""
    comparison_screen(comparison, everything=everything).show(console)
