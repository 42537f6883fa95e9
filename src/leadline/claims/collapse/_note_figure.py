"""The long note's experiment, run once per seed for all claims about its figure.

Seed 0 draws the note's own numbers; other seeds draw others. Curves are by layer, 0 to 12.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Trial

__all__ = ["NOTE_FIGURE", "curves"]


def _run(seed: int) -> Mapping[str, Any]:
    from leadline.experiments.rank_collapse.experiment import (
        DRAWN,
        RELATIVE,
        TRUE,
        Setting,
        rank_collapse,
    )

    panels = {DRAWN: "drawn", TRUE: "true", RELATIVE: "relative"}
    found: dict[str, dict[str, list[float]]] = {name: {} for name in panels.values()}
    for line in rank_collapse(Setting(seed=seed)).lines:
        if not line.faint:
            found[panels[line.panel]][line.name] = list(line.values)
    return found


NOTE_FIGURE = Trial("note-figure", _run, seconds=6.5)


def curves(trials: Mapping[str, Mapping[str, Any]], panel: str) -> Mapping[str, list[float]]:
    """drawn: residuals in float32; true: log10 of them; relative: log10 of their share."""
    return trials[NOTE_FIGURE.name][panel]
