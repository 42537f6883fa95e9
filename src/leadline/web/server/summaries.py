"""What the list says of one record: its kind, when it was made, whether it is whole, its verdict.

Runs in a process of its own, so that a file that is damaged in an odd way cannot hold up the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadline.errors import LeadlineError, words_of

if TYPE_CHECKING:
    from leadline.record import Record

__all__ = ["summary_of"]


def summary_of(path: str) -> dict[str, Any]:
    """Return what the list says of the record at this path; of a damaged one why it is damaged."""
    from leadline.record import Record

    try:
        with Record.open(path) as record:
            return _summary(record)
    except LeadlineError as error:
        sentence = str(error)
    except Exception as error:  # a file without checksums that another program has changed
        sentence = f"The record cannot be read ({type(error).__name__}: {words_of(error)})"
    return {
        "kind": "",
        "made": "",
        "status": "damaged",
        "verdict": {"level": "serious", "sentence": sentence},
        "quantities": 0,
        "steps": None,
    }


def _summary(record: Record) -> dict[str, Any]:
    from leadline.record.provenance import text_at
    from leadline.record.views import written_by
    from leadline.record.words.unfinished import UNFINISHED

    provenance = record.provenance
    cut_off = record.integrity == "unclosed" or UNFINISHED in provenance
    steps = max(record.last_steps().values(), default=0)
    return {
        "kind": written_by(provenance),
        "made": text_at(provenance, "time"),
        "status": "interrupted" if cut_off else "finished",
        "verdict": _verdict(record),
        "quantities": len(record.quantities),
        "steps": steps or None,
    }


def _verdict(record: Record) -> dict[str, Any]:
    """The worst finding as a level and a sentence; without one what the record answers."""
    from leadline.reading.diagnosis.standing import standing_diagnosis
    from leadline.reading.map.cells import is_sweep
    from leadline.reading.page.headline import record_answer
    from leadline.record.views import findings_to_show

    if is_sweep(record):
        from leadline.reading.map.text import map_answer
        from leadline.reading.map.trainability import trainability

        sentences = map_answer(trainability(record))
        return {"level": None, "sentence": sentences[0] if sentences else "No cell has ended yet."}
    findings = findings_to_show(record)
    if findings:
        return {"level": findings[0].severity, "sentence": findings[0].verdict}
    sentences = record_answer(record)
    looked = bool(standing_diagnosis(record).coverage.looked)
    watched = bool({"watch", "outcome"} & record.provenance.keys())
    return {
        "level": "healthy" if looked or watched else None,
        "sentence": sentences[0] if sentences else _without_lines(record),
    }


def _without_lines(record: Record) -> str:
    """What is said of a record that holds no line over depth: a run may only just have begun."""
    if record.integrity == "unclosed" and not max(record.last_steps().values(), default=0):
        return "No step has been written so far."
    return "The record holds no line over depth."
