"""The results of instruments as views of a record: which function reads which from its rows.

An instrument writes rows like everybody else, and says in the provenance, under `instrument`, which
one it is and what rows cannot hold. Its result is read back from there, by a function of the
instrument's own folder that needs no torch; experiments do the same under the name `reproduce`.
Records stand below instruments, so the function is named here and imported when it is first used.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from leadline.errors import RecordError, UnknownName
from leadline.record.provenance import text_at

if TYPE_CHECKING:
    from leadline.record.rows.finding import Finding

__all__ = [
    "VIEWS",
    "NoSuchView",
    "findings_to_show",
    "how_to_make",
    "maps_to_show",
    "view_reader",
    "written_by",
]


class NoSuchView(RecordError, AttributeError):
    """A record of another instrument; an AttributeError too, so that `hasattr` says no."""


VIEWS = {
    "jacobian": ("leadline.instruments.jacobian.rows:read_jacobian", "leadline.jacobian(model)"),
    "lyapunov": ("leadline.instruments.jacobian.rows:read_lyapunov", "leadline.lyapunov(model)"),
    "collapse": ("leadline.instruments.collapse.rows:read_collapse", "leadline.collapse(model)"),
    "paths": ("leadline.instruments.paths.rows:read_paths", "leadline.paths(model, inputs)"),
    "attacks": (
        "leadline.instruments.attacks.rows:read_attacks",
        "leadline.bounds(attack=True)",
    ),
    "scan": ("leadline.reading.scan.scan:read_scan", "leadline.scan(DIR, FILE)"),
    "reproduce": (
        "leadline.experiments.outcome.rows:read_outcome",
        "the outcome.leadline that `leadline reproduce NAME -o FOLDER` writes",
    ),
}


def view_reader(instrument: str) -> Callable[[Any], Any]:
    """Return the function that reads the result of an instrument from a record."""
    if instrument not in VIEWS:
        raise UnknownName("instrument with a result of its own", instrument, VIEWS)
    module, _, name = VIEWS[instrument][0].partition(":")
    return getattr(importlib.import_module(module), name)


_FINDINGS = "leadline.reading.diagnosis.standing:standing_findings"


def findings_to_show(record: Any) -> list[Finding]:
    """Return what rules say of a record and what is stored in it, the worst first.

    Rules read records, so they stand above them; like a view they are imported when first used.
    """
    module, _, name = _FINDINGS.partition(":")
    return getattr(importlib.import_module(module), name)(record)


_STEPS = "leadline.reading.watch.first_screen:layers_by_steps"


def maps_to_show(record: Any) -> list[Any]:
    """Return what the first screen shows of layers by steps; nothing where they were read once.

    The map is drawn from a history, which stands above records; it is imported when first used.
    """
    provenance = record.provenance
    if record.instrument or "sweep" in provenance or not {"watch", "training"} & provenance.keys():
        return []
    module, _, name = _STEPS.partition(":")
    return getattr(importlib.import_module(module), name)(record)


def written_by(provenance: Mapping[str, Any]) -> str:
    """Return the function and command that wrote a record, such as "measure"; "" if it is unknown."""
    instrument = text_at(provenance, "instrument", "name")
    if instrument:
        return {"attacks": "bounds"}.get(instrument, instrument)
    marks = {
        "watch": "watch",
        "sweep": "sweep",
        "training": "train",
        "visit": "diagnose",
        "probes": "measure",
    }
    return next((name for key, name in marks.items() if key in provenance), "")


def how_to_make(instrument: str) -> str:
    """Return the call that makes a record with this result."""
    return VIEWS[instrument][1]
