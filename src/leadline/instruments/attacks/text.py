"""The search for violations in the terminal: the answer, then a row per bound, violations red."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, cast

from leadline.reading.show.columns import Column, print_line, show_table
from leadline.record.words.numbers import format_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from leadline.instruments.attacks.result import AttackRow, AttackTable

__all__ = ["MOST_ROWS", "answer", "attacks_text", "show_attacks"]

MOST_ROWS = 15
"""How many bounds the first screen shows."""
NEAR = 0.999
"""From which ratio on a bound counts as met."""

_RED = "bold red"


def attacks_text(table: AttackTable) -> str:
    """Return the first screen as plain text: the answer, and the rows that came nearest."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=120, color_system=None)
    show_attacks(table, console, most=MOST_ROWS)
    return cast("io.StringIO", console.file).getvalue().rstrip("\n")


def answer(table: AttackTable) -> str:
    """Say in a sentence whether any bound was violated, and which came nearest."""
    violated = [row.name for row in table.rows if row.violated]
    if violated:
        count = "A bound is" if len(violated) == 1 else f"{len(violated)} bounds are"
        return f"{count} violated where the assumptions hold: {', '.join(violated)}."
    held = [row for row in table.rows if row.verdict == "held"]
    refuted = [row.name for row in table.rows if row.verdict == "refuted"]
    sentences: list[str] = []
    if held:
        near = sum(row.ratio >= NEAR for row in held)
        nearest = max(held, key=lambda row: row.ratio)
        distance = (
            f"{near} of them met to a thousandth of what they allow"
            if near
            else f"the nearest, {nearest.name}, met to {_ratio(nearest.ratio, 1)} of what it allows"
        )
        sentences.append(f"No bound is violated: {len(held)} held, {distance}.")
    else:
        sentences.append("No bound is violated, and no attack met all the assumptions of one.")
    if refuted:
        noun = "statement is" if len(refuted) == 1 else "statements are"
        sentences.append(f"{len(refuted)} {noun} false, as known: {', '.join(refuted)}.")
    return " ".join(sentences)


def show_attacks(table: AttackTable, console: Console, *, most: int | None = None) -> None:
    """Print the answer, what was attacked, a row per bound, and where bounds fail.

    `most` limits the rows to those that are violated or came nearest to it.
    """
    print_line(console, answer(table), style="bold red" if table.violated else "bold")
    print_line(console, _counts(table))
    print_line(console)
    for row in table.rows:
        if row.violated:
            print_line(console, _violation(row), style=_RED)
    if table.violated:
        print_line(console)
    rows = table.rows
    if most is not None and len(rows) > most:
        rows = sorted(rows, key=lambda row: (not row.violated, not row.attacks, -row.ratio))[:most]
    if rows:
        _show_rows(rows, console)
        if len(rows) < len(table.rows):
            print_line(
                console,
                f"Shown: the {len(rows)} of {len(table.rows)} that came nearest; --all, or "
                "record.attacks.rows, has every one.",
            )
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


def _show_rows(rows: Sequence[AttackRow], console: Console) -> None:
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
