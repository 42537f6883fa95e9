"""A verdict on a measurement, in one sentence, with the place it speaks of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from leadline.record.rows.site import Site

__all__ = ["SEVERITIES", "Finding", "Severity"]

Severity = Literal["note", "warning", "serious"]
SEVERITIES: tuple[Severity, ...] = ("serious", "warning", "note")
"""The worst first: whoever shows findings shows the answer first."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One verdict. `quantity` and `site` are given where the verdict speaks of one.

    `code` and `name` are those of the rule that made it, where a rule did. `details` holds what
    else is known, as JSON: evidence, cause, remedy.
    """

    verdict: str
    quantity: str | None = None
    site: Site | None = None
    severity: Severity = "note"
    code: str = ""
    name: str = ""
    details: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)
