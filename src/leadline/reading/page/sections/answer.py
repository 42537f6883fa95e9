"""What the page says first: findings, then sentences, then facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline.reading.page.headline import Fact, comparing_sentences, facts, sentences
from leadline.reading.page.section import SECTIONS, PagePart, holds_run, is_sweep
from leadline.reading.scan.words import facts_of, faults_of
from leadline.reading.show.markup import dot, law, safe
from leadline.reading.show.palette import record_colour
from leadline.record.provenance import text_at
from leadline.record.rows.finding import SEVERITIES
from leadline.record.run.scanned import is_scan

if TYPE_CHECKING:
    from leadline.reading.page.section import PageSubject
    from leadline.reading.scan.words import CheckpointFault
    from leadline.record import Record

__all__ = ["AnswerSection"]


@SECTIONS.register("answer")
class AnswerSection:
    """The headline: names, findings, sentences, facts."""

    place = 0

    def reads(self, record: Record) -> bool:
        """Every record has an answer."""
        return True

    def write(self, subject: PageSubject) -> list[PagePart]:
        """Return the headline."""
        eyebrow, lines = _sentences(subject)
        paragraphs = "".join(f"<p>{law(sentence)}</p>" for sentence in lines if sentence)
        content = (
            f'<p class="eyebrow">{safe(eyebrow)}</p><h1 id="headline">{safe(subject.title)}</h1>'
            f"{_findings(subject)}"
            f'<div class="sentences">{paragraphs}</div>{_facts(subject)}'
        )
        return [PagePart("summary", "", content, folded=False)]


def _sentences(subject: PageSubject) -> tuple[str, list[str]]:
    """Return what the page is about, and the sentences."""
    records, names = subject.records, subject.names
    trained = any(map(holds_run, records))
    if len(records) > 1:
        return f"Comparison of {len(records)} records", comparing_sentences(records, names)
    record, lines, report = records[0], [], "Depth report"
    if is_scan(record):
        return "Scan report", record.scan.answer[:1]
    if trained:
        from leadline.reading.page.run_headline import kind_of_report, run_sentences

        training_map = subject.training_map(0) if is_sweep(record) else None
        lines, report = run_sentences(record, training_map), kind_of_report(record)
    if (record.stacks and not is_sweep(record)) or not lines:
        lines += sentences(record)
    kind = text_at(record.provenance, "model", "class")
    return ": ".join(word for word in (report, kind) if word), lines


def _findings(subject: PageSubject) -> str:
    """The verdicts, the worst first; those of rules lead to their cards below."""
    several = len(subject.records) > 1
    findings = [
        (finding, f"{name}: " if several else "", f"finding-{at}-{number}")
        for at, name in enumerate(subject.names)
        for number, finding in enumerate(subject.findings(at))
    ]
    findings.sort(key=lambda one: SEVERITIES.index(one[0].severity))
    items = [
        _fault_item(fault) for r in subject.records if is_scan(r) for fault in faults_of(r.scan)
    ]
    items += [
        f'<li class="{finding.severity}"><b>{finding.severity.capitalize()}</b>'
        f"{safe(whose + finding.verdict)}"
        + (f' <a href="#{anchor}">{safe(finding.code)}</a>' if finding.code else "")
        + "</li>"
        for finding, whose, anchor in findings
    ]
    return f'<ul class="findings" aria-label="Findings">{"".join(items)}</ul>' if items else ""


def _fault_item(fault: CheckpointFault) -> str:
    """The fault of one checkpoint of a scan, or of several in a row."""
    return f'<li class="{fault.severity}"><b>{safe(fault.places)}</b>{safe(fault.sentence)}</li>'


def _all_facts(record: Record) -> list[Fact]:
    """What was trained and what was measured; models of a sweep differ in what is measured."""
    if is_scan(record):
        return [Fact(*fact) for fact in facts_of(record.scan)]
    if not holds_run(record):
        return facts(record)
    from leadline.reading.page.run_headline import run_facts

    trained = run_facts(record)
    alike = record.stacks and not is_sweep(record)
    return trained + (facts(record) if alike or not trained else [])


def _facts(subject: PageSubject) -> str:
    facts_by_record = [{f.label: f for f in _all_facts(record)} for record in subject.records]
    if len(facts_by_record) == 1:
        tiles = "".join(
            f"<div><dt>{safe(fact.label)}</dt><dd>{safe(fact.value)}"
            f"<small>{safe(fact.detail)}</small></dd></div>"
            for fact in facts_by_record[0].values()
        )
        return f'<dl class="facts card">{tiles}</dl>'
    labels = list(dict.fromkeys(label for one in facts_by_record for label in one))
    top = "".join(
        f'<th scope="col">{dot(record_colour(at))}{safe(name)}</th>'
        for at, name in enumerate(subject.names)
    )
    rows: list[str] = []
    if subject.full_names:
        cells = "".join(f"<td>{safe(name)}</td>" for name in subject.full_names)
        rows.append(f'<tr><th scope="row">Record</th>{cells}</tr>')
    for label in labels:
        cells = "".join(
            f'<td>{safe(one[label].value)} <small class="soft">{safe(one[label].detail)}</small></td>'
            if label in one
            else "<td>–</td>"
            for one in facts_by_record
        )
        rows.append(f'<tr><th scope="row">{safe(label)}</th>{cells}</tr>')
    return (
        '<div class="card scroll compared"><table>'
        f"<thead><tr><td></td>{top}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
