"""A verdict on a measurement, in one sentence, with the place it speaks of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from leadline.record.rows.site import Site

__all__ = ["SEVERITIES", "Confidence", "Finding", "Severity"]

Severity = Literal["note", "warning", "serious"]
SEVERITIES: tuple[Severity, ...] = ("serious", "warning", "note")
"""The worst first: whoever shows findings shows the answer first."""


Confidence = Literal["certain", "likely", "possible"]
"""How sure a rule is: an identity that fails is certain, an outlier is likely, a hint possible."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One verdict. `quantity` and `site` are given where the verdict speaks of one.

    `code` and `name` are those of the rule that made it, where a rule did. `details` holds what
    else is known, as JSON: place, evidence, cause, remedy. The properties read it.
    """

    verdict: str
    quantity: str | None = None
    site: Site | None = None
    severity: Severity = "note"
    code: str = ""
    name: str = ""
    details: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)

    @property
    def stack(self) -> str | None:
        """The stack that it speaks of."""
        return self.details.get("stack", None if self.site is None else self.site.stack)

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers that it speaks of; none for the model as a whole."""
        named = self.details.get("layers")
        if named is not None:
            return tuple(named)
        return () if self.site is None else (self.site.layer,)

    @property
    def sublayer(self) -> str | None:
        """The role of the sublayer, such as attention or mlp."""
        return self.details.get("sublayer")

    @property
    def head(self) -> int | None:
        """The attention head, counted from 1."""
        return self.details.get("head")

    @property
    def parameter(self) -> str | None:
        """The path of the parameter, buffer or module."""
        return self.details.get("parameter")

    @property
    def evidence(self) -> tuple[Mapping[str, Any], ...]:
        """The numbers that show it: what, value, expected, and where the expectation comes from."""
        return tuple(self.details.get("evidence", ()))

    @property
    def ruled_out(self) -> tuple[str, ...]:
        """Other explanations, each with why it is none."""
        return tuple(self.details.get("ruled_out", ()))

    @property
    def cause(self) -> str:
        """What most likely made it so."""
        return self.details.get("cause", "")

    @property
    def remedy(self) -> Mapping[str, Any]:
        """What to do: `words`, whether it is `safe`, and `edit` where it can be applied."""
        remedy: Any = self.details.get("remedy") or {}
        # Details are whatever JSON a file holds: findings of other writers may have a sentence here.
        return {"words": remedy} if isinstance(remedy, str) else remedy

    @property
    def confidence(self) -> Confidence | None:
        """How sure the rule is; None where no rule made the finding."""
        return self.details.get("confidence")

    @property
    def page(self) -> str:
        """Where the rule is explained."""
        return f"leadline explain {self.code}" if self.code else ""
