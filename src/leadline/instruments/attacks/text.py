"""The search for violations on a screen: the answer, then a row per bound, violations red."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from leadline.record.words.numbers import format_number
from leadline.record.words.screen import MOST_ROWS, Screen, Sentence
from leadline.record.words.table import Row, TableColumn, TextTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.instruments.attacks.result import AttackRow, AttackTable

__all__ = ["answer", "attacks_screen"]

NEAR = 0.999
"""From which ratio on a bound counts as met."""

_RED = "bold red"


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


def attacks_screen(table: AttackTable, *, everything: bool) -> Screen:
    """Return the answer, what was attacked, a row per bound, and where bounds fail.

    Without `everything` the rows are those that are violated or came nearest to it.
    """
    parts: list[Sentence | TextTable] = [
        Sentence(answer(table), _RED if table.violated else "bold"),
        Sentence(_counts(table)),
        Sentence(),
        *(Sentence(_violation(row), _RED) for row in table.rows if row.violated),
        Sentence(),
    ]
    rows = table.rows
    if not everything and len(rows) > MOST_ROWS:
        order = sorted(rows, key=lambda row: (not row.violated, not row.attacks, -row.ratio))
        rows = order[:MOST_ROWS]
    if rows:
        parts.append(_row_table(rows))
    if len(rows) < len(table.rows):
        nearest = f"Shown: the {len(rows)} of {len(table.rows)} that came nearest"
        parts.append(Sentence(f"{nearest}; --all, or print(record.attacks), has every one."))
    if rows:
        parts += [Sentence(), Sentence(_LEGEND, "dim")]
    if failures := [_outside(row) for row in table.rows if row.fails_outside]:
        parts += [Sentence(), Sentence("Where an assumption fails, these bounds do not hold:")]
        parts += map(Sentence, failures)
    if table.laws:
        many = len(table.laws) > 1
        law = (
            f"{' and '.join(table.laws)} {'are' if many else 'is'} not attacked: "
            f"{'laws' if many else 'a law'} of what is approached cannot be violated at once."
        )
        parts += [Sentence(), Sentence(law)]
    return Screen(tuple(parts))


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


def _row_table(rows: Sequence[AttackRow]) -> TextTable:
    columns = (
        TableColumn("bound", style="bold"),
        TableColumn("statement", gives_way=(1,)),
        TableColumn("random", right=True, gives_way=(2,)),
        TableColumn("optimised", right=True, gives_way=(2,)),
        TableColumn("ratio", right=True),
        TableColumn("verdict"),
        TableColumn("outside", right=True, gives_way=(3,)),
    )
    return TextTable(
        columns,
        tuple(
            Row(
                (
                    row.name,
                    row.statement,
                    f"{row.random:,}",
                    f"{row.optimised:,}",
                    _ratio(row.ratio, row.attacks),
                    row.verdict,
                    _ratio(row.outside_ratio, row.outside),
                ),
                _RED if row.violated else "",
            )
            for row in rows
        ),
    )


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
