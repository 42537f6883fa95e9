"""The outcome of an experiment: a table for every panel in the terminal, and the remarks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline.reading.show.wording import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from leadline.experiments.outcome.outcome import Outcome

__all__ = ["show_outcome"]

_MOST_LAYERS = 8
_NAMES, _CELL = 22, 13
"""Columns for the names of the lines, and for a number with its distance."""


def show_outcome(outcome: Outcome, console: Console) -> None:
    """Print a table for every panel, a row per line, and the remarks."""
    from rich.table import Table

    console.print(f"[bold]{outcome.title}[/bold]")
    for panel in outcome.panels:
        lines = [line for line in outcome.lines if line.panel == panel]
        stands = outcome.places.get(panel)
        start = 1 if stands else outcome.start
        names = min(_NAMES, max(len(line.name) for line in lines))
        most = min(_MOST_LAYERS, max(2, (console.width - names) // _CELL))
        places = _some([len(line.values) for line in lines], most)
        shown = [start - 1 + place for place in places]
        table = Table(title=panel, title_justify="left", box=None, pad_edge=False)
        axis = stands.label if stands else outcome.axis
        table.add_column(axis, overflow="fold", min_width=names)
        for layer in shown:
            title = f"{stands.at[layer - 1]:g}" if stands else str(layer)
            table.add_column(title, justify="right", no_wrap=True)
        for line in lines:
            cells = [
                number(line.values[layer - start], digits=4)
                if layer - start < len(line.values)
                else ""
                for layer in shown
            ]
            table.add_row(line.name, *cells)
        console.print(table)
        deepest = max(len(line.values) for line in lines)
        if len(shown) < deepest:
            what = "places" if axis != "layer" else "layers" if start else "sites"
            console.print(f"({len(shown)} of {deepest} {what}; -o and --json give all of them)")
        console.print()
    for told in outcome.tables:
        table = Table(title=told.title, title_justify="left", box=None, pad_edge=False)
        if told.names:
            table.add_column("", overflow="fold")
        for column in told.columns:
            table.add_column(column, justify="right", min_width=8, max_width=12, overflow="fold")
        for at, row in enumerate(told.rows):
            name = told.names[at : at + 1]
            table.add_row(*name, *(number(value, digits=told.digits) for value in row))
        console.print(table)
        console.print()
    for remark in outcome.remarks:
        console.print(remark, markup=False)
    for name, why in outcome.failures.items():
        console.print(f"{name} could not be measured: {why}", style="red", markup=False)


def _some(depths: Sequence[int], most: int) -> list[int]:
    """All layers of shallow stacks, evenly chosen ones of deep ones; every last layer."""
    deepest = max(depths)
    if deepest <= most:
        return list(range(1, deepest + 1))
    step = (deepest - 1) / (most - 1)
    return sorted({round(1 + k * step) for k in range(most)} | set(depths))
