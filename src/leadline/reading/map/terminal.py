"""The map of what trains on one screen: what trains and how deep, rows by depths, its gauges.

Green trains, red does not, grey was not measured; a mark says the same without colour. When the
terminal is narrow, seeds that agree are left out, then the spread over the seeds goes, then the
depths stand in several tables. Into a pipe: plain text with every column in full.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from leadline.reading.map.text import (
    MARKS,
    depth_text,
    gauge_rows,
    gauge_title,
    map_answer,
    map_title,
    notes,
    place_text,
    prediction_sentence,
    rules,
    spread_text,
    spread_title,
    unmeasured,
    usable_text,
)
from leadline.record.words.numbers import format_number
from leadline.record.words.screen import MOST_ROWS, Screen, Sentence
from leadline.record.words.table import Row, TableCell, TableColumn, TextTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.reading.map.places import MapPlace, MapRow
    from leadline.reading.map.trainability import Trainability

__all__ = ["map_screen"]

_STYLES = {True: "green", False: "red", None: "bright_black"}
_FEW_REASONS, _MOST_REASONS = 3, 12
_MARKED = f"{MARKS[True]} trains, {MARKS[False]} does not, {MARKS[None]} not measured: median loss"
_PLACE_NOTES = (
    f"{_MARKED}, seeds that train of those measured, ? for each hole",
    f"{_MARKED}, seeds where not all agree, ? for each hole",
)


def map_screen(
    training_map: Trainability, *, everything: bool = False, titled: bool = True
) -> Screen:
    """Return the answer, the map of the loss, its rule and notes; with `everything` the gauges."""
    parts: list[Sentence | TextTable] = (
        [Sentence(map_title(training_map), "bold")] if titled else []
    )
    parts += [Sentence(sentence) for sentence in map_answer(training_map)]
    rule = [Sentence(line, "dim") for line in rules(training_map)]
    if not training_map.rows:
        return Screen((*parts, *rule))
    rows = training_map.rows if everything else _deepest(training_map.rows)
    parts += [
        Sentence(),
        _loss_table(training_map, rows),
        *rule,
    ]
    if everything:
        parts += _gauges(training_map)
        parts += [Sentence(), Sentence(prediction_sentence(training_map))]
    else:
        hidden = len(training_map.rows) - len(rows)
        deepest = f"the {len(rows)} deepest of {len(training_map.rows)} rows; every row and "
        parts.append(
            Sentence(f"{deepest if hidden else ''}the gauges that predict it: --all", "dim")
        )
    parts += [Sentence(), *(Sentence(note) for note in notes(training_map))]
    most = _MOST_REASONS if everything else _FEW_REASONS
    return Screen((*parts, *_reasons(training_map, most)))


def _deepest(rows: Sequence[MapRow]) -> list[MapRow]:
    """Choose the rows with the largest usable depths, and keep their order."""
    order = sorted(
        range(len(rows)),
        key=lambda at: -1.0 if (usable := rows[at].usable) is None else -usable.depth - 2,
    )
    return [rows[at] for at in sorted(order[:MOST_ROWS])]


def _loss_table(training_map: Trainability, rows: Sequence[MapRow]) -> TextTable:
    """A row per design: its usable depth, that of its seeds, then the loss at every depth."""
    columns = (
        TableColumn(training_map.axis, style="bold"),
        TableColumn("usable"),
        TableColumn("by seed", gives_way=(2,), notes=(_spread_note(training_map),)),
        *(
            TableColumn(depth_text(depth), gives_way=(1,), stays=True, notes=_PLACE_NOTES)
            for depth in training_map.depths
        ),
    )
    return TextTable(
        columns,
        tuple(
            Row((row.name, usable_text(row), spread_text(row), *map(_place_cell, row.places)))
            for row in rows
        ),
    )


def _place_cell(place: MapPlace | None) -> TableCell:
    style = "" if place is None else _STYLES[place.trains]
    return TableCell((place_text(place), place_text(place, brief=True)), style=style)


def _spread_note(training_map: Trainability) -> str:
    return f"by seed: usable {training_map.axis} of {spread_title(training_map)}"


def _gauges(training_map: Trainability) -> list[Sentence | TextTable]:
    shown = training_map.shown
    if shown is None:
        return []
    judged = "" if math.isnan(shown.auc) else f", AUC {shown.auc:.3f}"
    title = f"{gauge_title(shown.gauge)} at step {shown.step}, median over seeds{judged}"
    columns = (
        TableColumn(training_map.axis, style="bold"),
        *(TableColumn(depth_text(depth)) for depth in training_map.depths),
    )
    values = TextTable(
        columns,
        tuple(
            Row((row.name, *(_gauge_cell(place, shown.gauge) for place in row.places)))
            for row in training_map.rows
        ),
    )
    judgement = TextTable(
        (
            TableColumn("gauge"),
            TableColumn("AUC at the first step", right=True, gives_way=(2,)),
            TableColumn("best AUC", right=True),
            TableColumn("at step", right=True),
            TableColumn("cells", right=True, gives_way=(1,)),
        ),
        tuple(Row(row) for row in gauge_rows(training_map)),
    )
    return [Sentence(), Sentence(title, "bold"), values, Sentence(), judgement]


def _gauge_cell(place: MapPlace | None, gauge: str) -> TableCell:
    value = None if place is None else place.gauges.get(gauge)
    style = "" if place is None else _STYLES[place.trains]
    return TableCell(("" if value is None else format_number(value, digits=3),), style=style)


def _reasons(training_map: Trainability, most: int) -> list[Sentence]:
    """Say why cells were not measured, equal reasons once."""
    groups: dict[tuple[str, str], list[str]] = {}
    for run, status, reason in unmeasured(training_map):
        groups.setdefault((status, reason), []).append(run)
    lines = [Sentence()]
    for (status, reason), runs in list(groups.items())[:most]:
        more = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
        lines.append(Sentence(f"{status}: {runs[0]}{more}: {reason}", _STYLES[None]))
    if len(groups) > most:
        lines.append(
            Sentence(f"... and {len(groups) - most} more reasons; --json gives all of them.")
        )
    return lines
