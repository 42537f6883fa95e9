"""The outcome of an experiment on a screen: the answer, a table for every panel, other remarks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline.reading.show.wording import number
from leadline.record.words.screen import Screen, Sentence
from leadline.record.words.table import Row, TableColumn, TextTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.experiments.outcome.outcome import Outcome
    from leadline.reading.show.panels import Table

__all__ = ["outcome_screen"]

_MOST_LAYERS = 8
_MOST_SENTENCES = 3
"""How many remarks are the answer; the others stand below the tables."""


def outcome_screen(outcome: Outcome) -> Screen:
    """Return what came out in a few sentences, a table for every panel, then the other remarks."""
    parts: list[Sentence | TextTable] = [
        Sentence(f"{name} could not be measured: {why}", "red")
        for name, why in outcome.failures.items()
    ]
    parts += map(Sentence, outcome.remarks[:_MOST_SENTENCES])
    parts += [Sentence(), Sentence(outcome.title, "bold"), Sentence()]
    for panel in outcome.panels:
        parts += _panel(outcome, panel)
    for table in outcome.tables:
        parts += [Sentence(table.title, "italic"), _numbers(table), Sentence()]
    others = outcome.remarks[_MOST_SENTENCES:]
    if others:
        parts += [Sentence("What else was seen", "italic"), *map(Sentence, others)]
    return Screen(tuple(parts))


def _panel(outcome: Outcome, panel: str) -> list[Sentence | TextTable]:
    """The lines of a panel at some of their places; those between go first on a narrow terminal."""
    lines = [line for line in outcome.lines if line.panel == panel]
    stands = outcome.places.get(panel)
    start = 1 if stands else outcome.start
    axis = stands.label if stands else outcome.axis
    deepest = max(len(line.values) for line in lines)
    shown = [start - 1 + place for place in _some([len(line.values) for line in lines])]
    columns = [TableColumn(axis, wraps=True)]
    for at, layer in enumerate(shown):
        title = f"{stands.at[layer - 1]:g}" if stands else str(layer)
        between = () if at in (0, len(shown) - 1) else (1,) if at % 2 else (2,)
        columns.append(TableColumn(title, right=True, gives_way=between))
    rows = tuple(
        Row(
            (
                line.name,
                *(
                    number(line.values[layer - start], digits=4)
                    if layer - start < len(line.values)
                    else ""
                    for layer in shown
                ),
            )
        )
        for line in lines
    )
    parts: list[Sentence | TextTable] = [Sentence(panel, "italic"), TextTable(tuple(columns), rows)]
    if len(shown) < deepest:
        what = "places" if axis != "layer" else "layers" if start else "sites"
        parts.append(Sentence(f"(some of {deepest} {what}; -o and --json give all of them)", "dim"))
    return [*parts, Sentence()]


def _numbers(table: Table) -> TextTable:
    columns = [TableColumn(wraps=True)] if table.names else []
    columns += [TableColumn(title, right=True) for title in table.columns]
    rows = (
        (*table.names[at : at + 1], *(number(value, digits=table.digits) for value in row))
        for at, row in enumerate(table.rows)
    )
    return TextTable(tuple(columns), tuple(map(Row, rows)))


def _some(depths: Sequence[int]) -> list[int]:
    """All layers of shallow stacks, evenly chosen ones of deep ones; every last layer."""
    deepest = max(depths)
    if deepest <= _MOST_LAYERS:
        return list(range(1, deepest + 1))
    step = (deepest - 1) / (_MOST_LAYERS - 1)
    return sorted({round(1 + k * step) for k in range(_MOST_LAYERS)} | set(depths))
