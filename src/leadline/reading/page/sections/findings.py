"""What is wrong: a card for each finding of a rule, with its evidence, cause and remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadline.reading.page.section import SECTIONS, PagePart, holds_run
from leadline.reading.show.markup import definitions, safe
from leadline.record.words.watch_answer import batch_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leadline.reading.diagnosis.diagnosis import Diagnosis
    from leadline.reading.page.section import PageSubject
    from leadline.record import Finding, Record

__all__ = ["FindingsSection"]


@SECTIONS.register("findings")
class FindingsSection:
    """A card for each finding of a rule, and which rules looked."""

    place = 5

    def reads(self, record: Record) -> bool:
        """Records of other instruments are not asked; of training runs alarms were."""
        return not record.instrument and (not holds_run(record) or bool(record.findings))

    def write(self, subject: PageSubject) -> list[PagePart]:
        """Return the cards; nothing where no rule found anything and no visit was made."""
        several = len(subject.records) > 1
        pieces: list[str] = []
        count = 0
        for at, name in enumerate(subject.names):
            findings = subject.findings(at)
            cards = [
                _card(finding, f"finding-{at}-{number}")
                for number, finding in enumerate(findings)
                if finding.code
            ]
            count += len(cards)
            visited = "visit" in subject.records[at].provenance
            if not cards and not visited:
                continue
            title = f"<h3>{safe(name)}</h3>" if several else ""
            looked = "" if holds_run(subject.records[at]) else _coverage(subject.diagnosis(at))
            pieces.append(f"{title}{''.join(cards)}{looked}")
        if not pieces:
            return []
        content = f'<div class="diagnosis">{"".join(pieces)}</div>'
        return [PagePart("findings", "Findings" if count else "Health", content, folded=False)]


def _card(finding: Finding, anchor: str) -> str:
    from leadline.reading.diagnosis.words import place_text

    remedy = str(finding.remedy.get("words", ""))
    entries = [
        ("Not it", "; ".join(finding.ruled_out)),
        ("Cause", finding.cause),
        ("What to do", remedy),
        ("Confidence", finding.confidence or ""),
        ("Batches", batch_words(finding.details.get("batches", {}))),
    ]
    place = place_text(finding)
    where = f' <span class="soft small">{safe(place)}</span>' if place else ""
    path = f"<p class='small soft'><code>{safe(finding.parameter)}</code></p>" if finding.parameter else ""  # fmt: skip
    return (
        f'<article class="card {finding.severity}" id="{anchor}"><h3>'
        f'<span class="severity">{safe(finding.severity)}</span> '
        f"{safe(finding.code)} {safe(finding.name)}{where}</h3>"
        f"<p><strong>{safe(finding.verdict)}</strong></p>{path}{_evidence(finding.evidence)}"
        f"{definitions(entries, kind='told')}{_rule_text(finding)}</article>"
    )


def _evidence(evidence: Sequence[Mapping[str, Any]]) -> str:
    from leadline.reading.diagnosis.words import number_text

    if not evidence:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{safe(one["what"])}</th><td>{safe(number_text(one["value"]))}</td>'
        f"<td>{safe(_expected(one))}</td>"
        f"<td>{safe(one.get('source') or '')}</td></tr>"
        for one in evidence
    )
    return (
        '<div class="scroll"><table><thead><tr><th scope="col">Evidence</th>'
        '<th scope="col">Measured</th><th scope="col">Expected</th>'
        f'<th scope="col">From</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _expected(one: Mapping[str, Any]) -> str:
    from leadline.reading.diagnosis.words import number_text

    expected = one.get("expected")
    return "–" if expected in ("", None) else number_text(expected)


def _rule_text(finding: Finding) -> str:
    """The page of the rule, folded; an alarm has its own under `leadline explain`."""
    from leadline.reading.diagnosis.page import rule_entries
    from leadline.reading.diagnosis.rule import RULES

    if finding.name not in RULES or RULES.get(finding.name).code != finding.code:
        return ""
    entries = definitions(rule_entries(RULES.get(finding.name)), kind="told")
    return f"<details><summary>About {safe(finding.code)}</summary>{entries}</details>"


def _coverage(diagnosis: Diagnosis) -> str:
    coverage = diagnosis.coverage
    looked = len(coverage.looked)
    first = f"{looked} rule{'' if looked == 1 else 's'} looked"
    if not coverage.could_not:
        return f'<p class="soft small">{first}.</p>'
    reasons = "".join(f"<li>{safe(code)}: {safe(why)}</li>" for code, why in coverage.could_not)
    return (
        f'<details class="small"><summary>{first}, {len(coverage.could_not)} could not</summary>'
        f"<ul>{reasons}</ul></details>"
    )
