"""The search for violations in the terminal: a row per bound, violations first and red."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from leadline.reading.show.columns import Column, print_line, show_table
from leadline.record.words.numbers import format_number

if TYPE_CHECKING:
    from rich.console import Console

    from leadline.instruments.attacks.result import AttackRow, AttackTable

__all__ = ["show_attacks"]

_RED = "bold red"


def show_attacks(table: AttackTable, console: Console) -> None:
    """Print what was attacked, a row per bound, and where bounds fail."""
    print_line(console, "The bounds under attack", style="bold")
    print_line(console, _counts(table))
    print_line(console)
    for row in table.rows:
        if row.violated:
            print_line(console, _violation(row), style=_RED)
    if table.violated:
        print_line(console)
    if table.rows:
        _show_rows(table, console)
        print_line(console)
        print_line(console, _LEGEND, style="dim")
    if failures := [_outside(row) for row in table.rows if row.fails_outside]:
        print_line(console)
        print_line(console, "Where an assumption fails, these bounds do not hold:")
        for sentence in failures:
            print_line(console, sentence)
    if table.laws:
        print_line(console)
        many = len(table.laws) > 1
        print_line(
            console,
            f"{' and '.join(table.laws)} {'are' if many else 'is'} not attacked: "
            f"{'laws' if many else 'a law'} of what is approached cannot be violated at once.",
        )


_LEGEND = (
    "ratio: the largest measured / predicted where the assumptions hold (its inverse for a lower "
    "bound); above 1 the bound is violated. outside: the worst where an assumption fails."
)


def _counts(table: AttackTable) -> str:
    return (
        f"Every bound was to meet {table.asked_random:,} random and {table.asked_optimised:,} "
        "optimised networks on which its assumptions hold, which those marked false never do; for "
        f"all bounds together {table.drawn:,} were drawn and {table.climbed:,} climbed "
        f"(seed {table.seed})."
    )


def _show_rows(table: AttackTable, console: Console) -> None:
    rows = table.rows
    name = Column("bound", [row.name for row in rows], style="bold")
    statement = Column("statement", [row.statement for row in rows])
    counts = [
        Column("random", [f"{row.random:,}" for row in rows], "right"),
        Column("optimised", [f"{row.optimised:,}" for row in rows], "right"),
    ]
    ratio = Column("ratio", [_ratio(row.ratio, row.attacks) for row in rows], "right")
    verdict = Column("verdict", [row.verdict for row in rows])
    outside = Column("outside", [_ratio(row.outside_ratio, row.outside) for row in rows], "right")
    attacks = Column("attacks", [f"{row.attacks:,}" for row in rows], "right")
    layouts = [
        [name, statement, *counts, ratio, verdict, outside],
        [name, *counts, ratio, verdict, outside],
        [name, attacks, ratio, verdict, outside],
        [name, attacks, ratio, verdict],
    ]
    styles = [_RED if row.violated else "" for row in rows]
    show_table(layouts, console, gaps=(2, 2, 1, 1), row_styles=styles)


def _ratio(value: float, attacks: int) -> str:
    """A ratio that is just below 1 does not become 1 by rounding."""
    if not attacks:
        return "-"
    text = format_number(value, digits=4)
    return "<1" if value < 1.0 and text == "1" else text


def _violation(row: AttackRow) -> str:
    return (
        f"VIOLATED: {row.name}, {row.statement}: {format_number(row.ratio)} times what it allows, "
        "though its assumptions hold. The bound, or the search, is wrong; --json gives the facts."
    )


def _outside(row: AttackRow) -> str:
    times = f"{format_number(row.outside_ratio, digits=3)} times"
    # A bound of zero: weights that let no logit differ, say, under a causal mask.
    by = times if row.outside_ratio < math.inf else "beyond any factor"
    return f"  {row.name}, {by}: {'; '.join(row.because)}."
