"""Ask every rule about a record, rank what they find, and say what was not looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from leadline.errors import InputError, RecordError, UnknownName, join_words
from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.rule import BASES, RULES, Rule
from leadline.reading.diagnosis.words import NOT_RECORDED
from leadline.record.rows.finding import SEVERITIES, Finding, Severity
from leadline.record.run.scanned import refuse_scan
from leadline.record.words.screen import Screen, Showable

if TYPE_CHECKING:
    from leadline.record import Record

__all__ = ["Coverage", "Diagnosis", "ask_rules", "choose_rules", "diagnose_record", "rank"]


@dataclass(frozen=True)
class Coverage:
    """Which rules looked, which could not and why, and which were left out by choice."""

    looked: tuple[str, ...]
    could_not: tuple[tuple[str, str], ...]
    """(code, why)"""
    ignored: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "looked": list(self.looked),
            "could_not": [{"code": code, "why": why} for code, why in self.could_not],
            "ignored": list(self.ignored),
        }


@dataclass(frozen=True)
class Diagnosis(Showable):
    """What is wrong, the worst and surest first, and what was looked at.

    `print` shows the answer, the findings with their evidence and what to do, and the coverage.
    """

    findings: tuple[Finding, ...]
    coverage: Coverage
    record: Record
    explained: tuple[tuple[str, Finding], ...] = ()
    """Findings that follow from others, each with the code of what explains it."""

    @property
    def healthy(self) -> bool:
        """True where nothing but notes was found."""
        return all(finding.severity == "note" for finding in self.findings)

    def worse_than(self, severity: Severity) -> bool:
        """Whether a finding is at least as severe as this."""
        limit = SEVERITIES.index(severity)
        return any(SEVERITIES.index(finding.severity) <= limit for finding in self.findings)

    @property
    def answer(self) -> list[str]:
        """The first sentences: is it healthy, and if not, what is wrong first."""
        from leadline.reading.diagnosis.words import answer_of

        return answer_of(self)

    def to_json(self) -> dict[str, Any]:
        """Return it as strict JSON, described in docs/diagnosis.md."""
        from leadline.reading.diagnosis.words import answer_of, finding_json

        return {
            "schema": 1,
            "answer": answer_of(self),
            "healthy": self.healthy,
            "findings": [finding_json(finding) for finding in self.findings],
            "explained": [
                finding_json(finding) | {"explained_by": code} for code, finding in self.explained
            ],
            "statistics": dict(Counter(finding.code for finding in self.findings)),
            "coverage": self.coverage.to_json(),
        }

    def to_sarif(self) -> dict[str, Any]:
        """Return it as SARIF 2.1.0, the form in which code hosts read findings."""
        from leadline.reading.diagnosis.sarif import sarif_log

        return sarif_log(self)

    def in_full(self) -> str:
        """Return every finding, note and reason as text; `print` shows those that matter most."""
        return self.screen(everything=True).text()

    def screen(self, *, everything: bool = False) -> Screen:
        """Return what is shown: the answer, the findings with their evidence, the coverage."""
        from leadline.reading.diagnosis.words import screen_of

        return screen_of(self, everything=everything)


def diagnose_record(
    record: Record,
    *,
    reference: Record | None = None,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> Diagnosis:
    """Ask the rules about a record. `select` and `ignore` are codes or names of rules.

    Warnings that were said while a run was trained stand among the findings. A record that no rule can
    look at and that holds none is refused: nothing found would mean nothing.
    """
    for one in (record, reference):
        if one is not None:
            refuse_scan(one)
    diagnosis = ask_rules(record, reference=reference, select=select, ignore=ignore)
    coverage = diagnosis.coverage
    warnings = [] if select else [one for one in record.findings if "step" in one.details]
    if warnings:
        together = sorted(
            [*warnings, *diagnosis.findings], key=lambda one: SEVERITIES.index(one.severity)
        )
        return replace(diagnosis, findings=tuple(together))
    if coverage.could_not and not coverage.looked:
        codes = [code for code, _ in coverage.could_not]
        who = codes[0] if len(codes) == 1 else f"None of {len(codes)} rules"
        could = "cannot look" if len(codes) == 1 else "can look"
        raise RecordError(
            f"{who} {could}: {coverage.could_not[0][1]}. `leadline diagnose MODEL -o FILE` measures "
            "everything that rules need."
        )
    return diagnosis


def ask_rules(
    record: Record,
    *,
    reference: Record | None = None,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> Diagnosis:
    """Ask those of the rules that can look at a record, and say which could not."""
    case = Case(record, reference)
    chosen, left_out = choose_rules(select, ignore)
    # What a rule explains is no news where the rule itself is ignored.
    silent = {one.code for one in left_out}
    findings: list[Finding] = []
    looked: list[str] = []
    could_not: list[tuple[str, str]] = []
    for one in [*chosen, *(() if select else left_out)]:
        try:
            missing = [need for need in one.needs if not case.has(need)]
            if missing:
                could_not.append((one.code, why_missing(case, missing)))
                continue
            findings += list(one.look(case))
        except Exception as error:  # a rule of a plug-in, or a record that another program wrote
            why = f"the rule failed on this record ({type(error).__name__}: {error})"
            could_not.append((one.code, why))
        else:
            looked.append(one.code)
    ranked, explained = rank(findings, [one for _, one in RULES.items()])
    ranked = [finding for finding in ranked if finding.code not in silent]
    looked = [code for code in looked if code not in silent]
    could_not = [(code, why) for code, why in could_not if code not in silent]
    coverage = Coverage(tuple(looked), tuple(could_not), tuple(one.code for one in left_out))
    return Diagnosis(tuple(ranked), coverage, record, tuple(explained))


def why_missing(case: Case, missing: Sequence[str]) -> str:
    """Say why a rule could not look: the visit's own reason where it has one."""
    reasons: dict[str, str] = {"intended": "not asked for: --intended TEXT"}
    reasons |= case.fact("could_not", {})
    known = [reasons[need] for need in missing if need in reasons]
    if known:
        return "; ".join(dict.fromkeys(known))
    return f"{NOT_RECORDED}{', '.join(missing)}"


def choose_rules(select: Sequence[str], ignore: Sequence[str]) -> tuple[list[Rule], list[Rule]]:
    """The rules to ask, by code, name or the beginning of a code (`A` is all of attention)."""
    select, ignore = _listed(select), _listed(ignore)
    rules = sorted((one for _, one in RULES.items()), key=lambda one: one.code)
    for word in [*select, *ignore]:
        if not any(_matches(one, word) for one in rules):
            raise UnknownName("rule", word, _alike(rules, word))
    chosen = [
        one
        for one in rules
        if (not select or any(_matches(one, word) for word in select))
        and not any(_matches(one, word) for word in ignore)
    ]
    if not chosen:
        raise InputError(
            f"No rule is left: {join_words(ignore)} is ignored"
            + (f" of {join_words(select)}." if select else ".")
        )
    return chosen, [one for one in rules if one not in chosen]


def _alike(rules: Sequence[Rule], word: str) -> list[str]:
    """The names among which the nearest are: of what looks like a code, those of its letter."""
    codes = [one.code for one in rules if one.code[0] == word[0].upper() and word[1:].isdecimal()]
    return codes or [name for one in rules for name in (one.code, one.name)]


def _listed(words: Sequence[str]) -> list[str]:
    """Codes or names, also where one text holds them, with commas between."""
    listed = words.split(",") if isinstance(words, str) else list(words)
    return [word.strip() for word in listed if word.strip()]


def _matches(one: Rule, word: str) -> bool:
    return word == one.name or one.code.startswith(word.upper())


def rank(
    findings: Iterable[Finding], rules: Sequence[Rule]
) -> tuple[list[Finding], list[tuple[str, Finding]]]:
    """Order findings by severity, then by how sure they are; set apart those that follow from others.

    A finding follows from another whose rule names its rule among what it explains, if they share
    a layer, or if one of them speaks of the model as a whole.
    """
    by_code = {one.code: one for one in rules}
    ordered = sorted(findings, key=lambda finding: _rank_of(finding, by_code))
    kept: list[Finding] = []
    explained: list[tuple[str, Finding]] = []
    for finding in ordered:
        reason = next(
            (
                other
                for other in ordered
                if other is not finding
                and other.code in by_code
                and finding.name in by_code[other.code].explains
                and finding.code != other.code
                and _meet(other, finding)
                and not _explained_back(finding, other, by_code)
            ),
            None,
        )
        if reason is None:
            kept.append(finding)
        else:
            explained.append((reason.code, finding))
    return kept, explained


def _explained_back(finding: Finding, other: Finding, by_code: dict[str, Rule]) -> bool:
    """Whether two rules explain each other; then the higher rank stands."""
    mutual = finding.code in by_code and other.name in by_code[finding.code].explains
    return mutual and _rank_of(finding, by_code) <= _rank_of(other, by_code)


def _rank_of(finding: Finding, by_code: dict[str, Rule]) -> tuple[int, int, str]:
    basis = by_code[finding.code].basis if finding.code in by_code else "outcome"
    return SEVERITIES.index(finding.severity), BASES.index(basis), finding.code


_EFFECTS = frozenset("ADLOPX")
"""First letters of rules about what passes through the model: a fault in one layer shows in others.

What is read off weights and code stands where its fault is, but for alignment, which is read off what
enters a tensor.
"""


_EVERYWHERE = frozenset({"W10"})
"""Rules whose fault shows in every layer, before and behind it: nothing balances beside NaN."""


def _meet(first: Finding, second: Finding) -> bool:
    """Whether the second finding can be an effect of the first, by their places."""
    if first.stack and second.stack and first.stack != second.stack:
        return False
    if not first.layers or not second.layers or second.code[:1] in _EFFECTS:
        return True
    if first.code in _EVERYWHERE:
        return True
    return second.name == "weights-foreign" or bool(set(first.layers) & set(second.layers))
