"""Bounds on one screen: is any violated, which is tight, which do not apply and why.

Violations stand first and red, then a row per bound or per head. With `everything` bounds on
attention, those on rank collapse and laws of depth have tables of their own, with their legends and
every reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline.reading.bounds.text import (
    applies_text,
    bounds_answer,
    differing_places,
    legend,
    measured_range,
    place_text,
    predicted_range,
    ratio_text,
    reasons,
    size_text,
    tightness,
    title_of,
    violations,
)
from leadline.record.words.screen import MOST_ROWS, Screen, Sentence
from leadline.record.words.table import Row, TableCell, TableColumn, TextTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.reading.bounds.table import BoundAtHead, BoundResult, BoundsTable

__all__ = ["bounds_screen", "summary_table"]

_RED = "bold red"
_LEGEND = (
    "ratio: measured / predicted where it is closest to the bound; 1 is tight; what a bound states: "
    "`leadline explain NAME`"
)


def bounds_screen(table: BoundsTable, *, heads: bool = False, everything: bool = False) -> Screen:
    """Return the answer and the nearest bounds; every bound with `everything` or `heads`."""
    if not everything and not heads:
        return _first_screen(table)
    parts = _answer(table, idle=False)  # the reasons stand below every table
    for family in table.families():
        rows = _head_table(family) if heads else summary_table(family.bounds)
        parts += [Sentence(), Sentence(title_of(family), "bold")]
        parts += [Sentence(), rows, Sentence(), Sentence(legend(family), "dim")]
        parts += [Sentence(), *(Sentence(sentence) for sentence in reasons(family))]
    return Screen(tuple(parts))


def _answer(table: BoundsTable, *, idle: bool) -> list[Sentence | TextTable]:
    """What is violated, whether any bound is, which is tight, and with `idle` which do not apply."""
    title = f"Bounds: {table.name}" if table.name else "Bounds"
    return [
        Sentence(title, "bold"),
        *(Sentence(sentence, _RED) for sentence in violations(table)),
        *map(Sentence, bounds_answer(table, idle=idle)),
    ]


def _first_screen(table: BoundsTable) -> Screen:
    # Those that apply nowhere are told in words, with the reason.
    applying = [bound for bound in table.bounds if bound.applying] or list(table.bounds)
    order = sorted(applying, key=lambda one: (not one.violations, tightness(one)))
    shown = order[:MOST_ROWS]
    parts = _answer(table, idle=True)
    if shown:
        parts += [Sentence(), summary_table(shown), Sentence(_LEGEND, "dim")]
        kept = f"{len(shown)} of {len(table.bounds)} bounds, the nearest first; "
        more = kept if len(shown) < len(table.bounds) else ""
        parts.append(
            Sentence(f"{more}every bound and every reason: --all; every head: --heads", "dim")
        )
    return Screen(tuple(parts))


def summary_table(bounds: Sequence[BoundResult]) -> TextTable:
    """Return a row per bound: where it applies, predicted, measured, and where it is closest."""
    differing = differing_places(bounds)
    columns = (
        TableColumn("bound", style="bold"),
        TableColumn("applies to", gives_way=(2, 6)),
        TableColumn("predicted", right=True, gives_way=(7,)),
        TableColumn("measured", right=True, gives_way=(4,)),
        TableColumn("ratio", right=True),
        TableColumn("at", gives_way=(3, 5)),
        TableColumn("statement", gives_way=(1,)),
    )
    rows = tuple(
        Row(
            (
                bound.label,
                TableCell((applies_text(bound), f"{len(bound.applying)}/{len(bound.rows)}")),
                predicted_range(bound),
                measured_range(bound),
                ratio_text(bound, bound.closest),
                _place(bound.closest, differing),
                bound.statement,
            ),
            _RED if bound.violations else "",
        )
        for bound in bounds
    )
    return TextTable(columns, rows)


def _head_table(table: BoundsTable) -> TextTable:
    """Return a row per bound and head; what is known of one head stands together."""
    differing = differing_places(table.bounds)
    pairs = [(bound, row) for bound in table.bounds for row in bound.rows]
    stacks = list(dict.fromkeys(row.stack for _, row in pairs))
    pairs.sort(key=lambda pair: (stacks.index(pair[1].stack), *_inside_stack(pair[1])))
    columns = (
        TableColumn("at", gives_way=(2,), stays=True),
        TableColumn("bound", style="bold"),
        TableColumn("predicted", right=True),
        TableColumn("measured", right=True),
        TableColumn("certified", gives_way=(1,)),
        TableColumn("ratio", right=True, gives_way=(3,)),
        TableColumn("applies"),
    )
    rows = tuple(
        Row(
            (
                _place(row, differing),
                bound.label,
                _text(bound, row.predicted),
                _text(bound, row.measured),
                _interval(bound, row),
                ratio_text(bound, row),
                "VIOLATED" if row.violated else "yes" if row.applies else "no",
            ),
            _RED if row.violated else "",
        )
        for bound, row in pairs
    )
    return TextTable(columns, rows)


def _place(row: BoundAtHead | None, differing: tuple[bool, bool]) -> str | TableCell:
    if row is None:
        return ""
    return TableCell((place_text(row, differing), place_text(row, differing, brief=True)))


def _inside_stack(row: BoundAtHead) -> tuple[int, int, str, int]:
    return row.layer, row.sublayer or 0, row.point, row.head or 0


def _interval(bound: BoundResult, row: BoundAtHead) -> str:
    if row.lower is None or row.upper is None:
        return ""
    ends = (size_text(end, log10=bound.log10, digits=7) for end in (row.lower, row.upper))
    return f"[{', '.join(ends)}]"


def _text(bound: BoundResult, value: float | None) -> str:
    return "-" if value is None else size_text(value, log10=bound.log10)
