"""The folder of an experiment: picture.svg, table.csv, outcome.leadline and the records behind it."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from leadline.experiments.outcome.rows import outcome_record
from leadline.reading.show.line_chart import line_chart

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from leadline.experiments.outcome.outcome import Outcome

__all__ = ["write_outcome"]


def write_outcome(
    outcome: Outcome, folder: Path, *, options: Mapping[str, Any] | None = None
) -> None:
    """Write picture.svg, table.csv, outcome.leadline and the records into the folder.

    outcome.leadline holds all of the outcome, and the options of the experiment.
    Where the outcome has tables beside its lines, table.csv has them too: their rows say in the
    column `quantity` which column of the table it is, and have no place on the axis.
    """
    picture = line_chart(
        outcome.lines,
        title=outcome.title,
        value_label=outcome.value_label,
        start=outcome.start,
        layer_label=outcome.axis,
        scales=outcome.scales,
        notes=outcome.remarks if outcome.captioned else (),
        places=outcome.places,
        across=outcome.across,
        planes=outcome.planes,
    )
    (folder / "picture.svg").write_text(picture, encoding="utf-8")
    with (folder / "table.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        of_lines = [outcome.value_label] if outcome.tables else []
        titles = ["quantity"] if outcome.tables else []
        writer.writerow(["panel", "name", outcome.axis, *titles, "value"])
        for line in outcome.lines:
            stands = outcome.places.get(line.panel)
            for number, value in enumerate(line.values):
                place = f"{stands.at[number]:g}" if stands else outcome.start + number
                writer.writerow([line.panel, line.name, place, *of_lines, repr(value)])
        for table in outcome.tables:
            for name, title, value in table.cells():
                writer.writerow([table.title, name, "", title, repr(value)])
    for name, record in outcome.records.items():
        record.save(folder / f"{name}.leadline")
    outcome_record(outcome, options=options).save(folder / "outcome.leadline")
