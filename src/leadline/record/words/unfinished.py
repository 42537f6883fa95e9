"""How far an unfinished record has come, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.record.provenance import number_at, value_at

__all__ = ["UNFINISHED", "unfinished_text"]

UNFINISHED = "unfinished"
"""The provenance entry of a record that still grows."""


def unfinished_text(provenance: Mapping[str, Any]) -> str:
    """Say how far an unfinished record has come; empty for a finished one."""
    if UNFINISHED not in provenance:
        return ""
    parts = number_at(provenance, UNFINISHED, "parts") or 0
    finished: Any = value_at(provenance, UNFINISHED, "finished") or {}
    return f"unfinished, {len(finished)} of {parts:.0f} parts of it are in the record"
