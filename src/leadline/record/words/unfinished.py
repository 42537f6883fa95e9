"""How far an unfinished record has come, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from leadline.record.provenance import number_at, value_at
from leadline.record.views import written_by

if TYPE_CHECKING:
    from leadline.record.record import Record

__all__ = ["UNFINISHED", "unfinished_sentence", "unfinished_text"]

UNFINISHED = "unfinished"
"""The provenance entry of a record that still grows."""


def unfinished_text(provenance: Mapping[str, Any]) -> str:
    """Say how far an unfinished record has come; empty for a finished one."""
    if UNFINISHED not in provenance:
        return ""
    parts = number_at(provenance, UNFINISHED, "parts") or 0
    finished: Any = value_at(provenance, UNFINISHED, "finished") or {}
    return f"unfinished, {len(finished)} of {parts:.0f} parts of it are in the record"


def unfinished_sentence(record: Record) -> str:
    """Say that a record is unfinished, and how to go on with it; empty for a finished one."""
    provenance = record.provenance
    if UNFINISHED not in provenance:
        return ""
    parts = number_at(provenance, UNFINISHED, "parts") or 0
    finished: Any = value_at(provenance, UNFINISHED, "finished") or {}
    how_far = f"Unfinished: {len(finished)} of {parts:.0f} parts are in the record"
    if record.path is None:
        return f"{how_far}."
    writer = written_by(provenance) or "measure"
    return (
        f"{how_far}; the same `leadline {writer} ... -o {record.path}` goes on, or the same "
        f"`leadline.{writer}(..., path={str(record.path)!r})`."
    )
