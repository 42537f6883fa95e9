"""Apply a remedy to a copy of the model, visit it again, and say whether it helped."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from leadline.instruments.visit.remedies.edit import EDITS, EditError
from leadline.models.streaming.decision import copy_refusal
from leadline.record.rows.finding import SEVERITIES
from leadline.record.words.screen import Screen, Sentence, Showable

if TYPE_CHECKING:
    from leadline.reading.diagnosis.diagnosis import Diagnosis
    from leadline.record.rows.finding import Finding

__all__ = ["Proof", "apply_remedy", "preview_remedy", "prove_remedy"]


def preview_remedy(finding: Finding) -> str:
    """What applying the remedy of a finding would change, as lines of a diff."""
    edit = _edit_of(finding)
    safety = "safe" if finding.remedy.get("safe") else "unsafe: changes the function or the weights"
    lines = [f"{finding.code} {finding.name}: {edit['edit']} ({safety})"]
    lines += [f"  {key}: {value}" for key, value in edit.items() if key != "edit"]
    return "\n".join(lines)


def apply_remedy(model: nn.Module, finding: Finding) -> nn.Module:
    """A copy of the model with the remedy of a finding; the model itself is left as it is."""
    edit = _edit_of(finding)
    name = edit.pop("edit")
    if (reason := copy_refusal(model)) is not None:
        raise EditError(f"A remedy is tried on a copy; this model is streamed, and {reason}.")
    patched = copy.deepcopy(model)
    try:
        EDITS.get(name)(patched, **edit)
    except TypeError as error:
        raise EditError(
            f"The remedy of {finding.code} does not fit the edit {name!r}: {error}."
        ) from error
    return patched


def _edit_of(finding: Finding) -> dict[str, Any]:
    edit = dict(finding.remedy.get("edit") or {})
    if not edit:
        words = finding.remedy.get("words") or "there is none"
        raise EditError(
            f"The remedy of {finding.code} {finding.name} cannot be applied by itself; by hand: {words}"
        )
    return edit


@dataclass(frozen=True)
class Proof(Showable):
    """What a second visit found after a remedy was applied to a copy."""

    finding: Finding
    before: Diagnosis
    after: Diagnosis

    @property
    def gone(self) -> bool:
        """Whether the finding is gone at its place."""
        return not any(
            one.code == self.finding.code
            and (not self.finding.layers or set(one.layers) & set(self.finding.layers))
            and not _of_another_tensor(one, self.finding)
            for one in self.after.findings
        )

    @property
    def new(self) -> tuple[Finding, ...]:
        """Findings, other than notes, that were not there before."""
        known = {(one.code, one.layers) for one in self.before.findings}
        return tuple(
            one
            for one in self.after.findings
            if one.severity != "note" and (one.code, one.layers) not in known
        )

    @property
    def helps(self) -> bool:
        """Whether the finding is gone, and nothing as severe has come in its place."""
        limit = SEVERITIES.index(self.finding.severity)
        return self.gone and all(SEVERITIES.index(one.severity) > limit for one in self.new)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "code": self.finding.code,
            "gone": self.gone,
            "helps": self.helps,
            "healthy": self.after.healthy,
            "new": [one.verdict for one in self.new],
        }

    def screen(self, *, everything: bool = False) -> Screen:
        """Return what is shown."""
        name = f"{self.finding.code} {self.finding.name}"
        if self.gone and any(one.code == self.finding.code for one in self.after.findings):
            name += f" of {_tensor_of(self.finding) or 'its layers'}"  # another one stays
        first = (
            f"The remedy helps: {name} is gone on a copy of the model."
            if self.helps
            else f"The remedy does not help: {name} is gone on a copy, and something as severe is new."
            if self.gone
            else f"The remedy does not help: {name} is still found on the copy."
        )
        lines = [Sentence(first, "bold")]
        if self.new:
            lines.append(Sentence(f"New: {' '.join(one.verdict for one in self.new)}"))
        left = [
            one for one in self.after.findings if one.severity != "note" and one not in self.new
        ]
        if left:
            lines.append(Sentence(f"Still there: {' '.join(one.verdict for one in left)}"))
        elif not self.new:
            lines.append(Sentence("Nothing else is unusual."))
        return Screen(tuple(lines))


def _of_another_tensor(one: Finding, other: Finding) -> bool:
    """Whether two findings are remedied in different tensors, so that one may go and one stay."""
    places = _tensor_of(one), _tensor_of(other)
    return None not in places and places[0] != places[1]


def _tensor_of(finding: Finding) -> str | None:
    return (finding.remedy.get("edit") or {}).get("parameter")


def prove_remedy(
    model: nn.Module,
    before: Diagnosis,
    finding: Finding,
    diagnose_again: Callable[[nn.Module], Diagnosis],
) -> Proof:
    """Apply the remedy to a copy, diagnose the copy, and set the two diagnoses side by side."""
    return Proof(finding, before, diagnose_again(apply_remedy(model, finding)))
