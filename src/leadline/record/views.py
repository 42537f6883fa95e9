"""The results of instruments as views of a record: which function reads which from its rows.

An instrument writes rows like everybody else, and says in the provenance, under `instrument`, which
one it is and what rows cannot hold. Its result is read back from there, by a function of the
instrument's own folder that needs no torch; experiments do the same under the name `reproduce`. Records stand below instruments, so the function is
named here and imported when it is first used.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from leadline.errors import UnknownName

__all__ = ["how_to_make", "view_reader", "view_text"]

_VIEWS = {
    "jacobian": ("leadline.instruments.jacobian.rows:read_jacobian", "leadline.jacobian(model)"),
    "lyapunov": ("leadline.instruments.jacobian.rows:read_lyapunov", "leadline.lyapunov(model)"),
    "collapse": ("leadline.instruments.collapse.rows:read_collapse", "leadline.collapse(model)"),
    "paths": ("leadline.instruments.paths.rows:read_paths", "leadline.paths(model, inputs)"),
    "attacks": (
        "leadline.instruments.attacks.rows:read_attacks",
        "leadline.bounds(attack=True)",
    ),
    "reproduce": (
        "leadline.experiments.outcome.rows:read_outcome",
        "the outcome.leadline that `leadline reproduce NAME -o FOLDER` writes",
    ),
}

_TEXTS = {
    "collapse": "leadline.instruments.collapse.text:collapse_text",
    "attacks": "leadline.instruments.attacks.text:attacks_text",
}
"""What writes the first screen of a result, where that is less than the whole result."""


def view_reader(instrument: str) -> Callable[[Any], Any]:
    """Return the function that reads the result of an instrument from a record."""
    if instrument not in _VIEWS:
        raise UnknownName("instrument with a result of its own", instrument, _VIEWS)
    return _imported(_VIEWS[instrument][0])


def view_text(instrument: str, view: Any) -> str:
    """Return what is printed of a record with this result."""
    return _imported(_TEXTS[instrument])(view) if instrument in _TEXTS else str(view)


def how_to_make(instrument: str) -> str:
    """Return the call that makes a record with this result."""
    return _VIEWS[instrument][1]


def _imported(place: str) -> Callable[[Any], Any]:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
