"""A verdict on a measurement, in one sentence, with the place it speaks of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from leadline.record.rows.site import Site

__all__ = ["Finding", "Severity"]

Severity = Literal["note", "serious"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One verdict. `quantity` and `site` are given where the verdict speaks of one."""

    verdict: str
    quantity: str | None = None
    site: Site | None = None
    severity: Severity = "note"
