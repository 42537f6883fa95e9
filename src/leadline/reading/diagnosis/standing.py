"""What the rules say of a record that is shown: asked once, for as long as the record stays as it is.

`measure`, `report`, `compare`, `print(record)` and the page show it first. What was stored in the
record stays what it was; a stored finding that a rule says again is not shown twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from leadline.reading.diagnosis.diagnosis import Coverage, Diagnosis, ask_rules
from leadline.record.rows.finding import SEVERITIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.record import Finding, Record

__all__ = ["standing_diagnosis", "standing_findings", "without_repetition"]

_SAME = {
    "not finite": ("not-finite", "weights-not-finite", "float16-overflow"),
    "may see no key": ("mask-row-empty",),
}
"""Words of a finding that the passes store, and the rules that say the same with a cause."""

_ASKED: WeakKeyDictionary[Record, tuple[tuple[int, int], Diagnosis]] = WeakKeyDictionary()


def standing_diagnosis(record: Record) -> Diagnosis:
    """Ask the rules about a record, those that can look. A record of training runs is not asked.

    Many models, or one at many steps, have no single state that a rule could look at.
    """
    trained = any(quantity.over == "step" for quantity in record.quantities.values())
    if trained or record.instrument or "sweep" in record.provenance:
        return Diagnosis((), Coverage((), ()), record)
    size = len(record), len(record.findings)
    if record not in _ASKED or _ASKED[record][0] != size:
        _ASKED[record] = size, ask_rules(record)
    return _ASKED[record][1]


def standing_findings(record: Record) -> list[Finding]:
    """The findings of rules and those that were stored, the worst first, nothing twice."""
    return without_repetition(standing_diagnosis(record), record.findings)


def without_repetition(diagnosis: Diagnosis, stored: Sequence[Finding]) -> list[Finding]:
    """Put stored findings behind those of rules, and leave out what a rule says as well.

    What a rule that looked stored earlier stands for nothing now: the rule was asked again.
    """
    said = {one.name for one in (*diagnosis.findings, *(one for _, one in diagnosis.explained))}
    asked = {*diagnosis.coverage.looked, *diagnosis.coverage.ignored}
    kept = [
        finding
        for finding in stored
        if finding.code not in asked
        and not any(words in finding.verdict and said & {*names} for words, names in _SAME.items())
    ]
    together = [*diagnosis.findings, *kept]
    return sorted(together, key=lambda finding: SEVERITIES.index(finding.severity))
