"""A diagnosis in words: the answer, each finding with its evidence, what was not looked at."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from leadline.errors import join_words
from leadline.record.provenance import strict_json, text_at, value_at
from leadline.record.rows.finding import SEVERITIES, Finding
from leadline.record.words.screen import Screen, Sentence
from leadline.record.words.table import Row, TableColumn, TextTable

if TYPE_CHECKING:
    from leadline.reading.diagnosis.diagnosis import Diagnosis

__all__ = [
    "NOT_RECORDED",
    "answer_of",
    "evidence_text",
    "finding_json",
    "finding_line",
    "layers_text",
    "number_text",
    "place_text",
    "screen_of",
    "statistics_table",
]

MOST_FINDINGS = 5
"""So many findings stand on the first screen with their evidence."""
MOST_REASONS = 3
"""So many reasons why rules could not look stand on the first screen."""
NOT_RECORDED = "the record has no "
"""So begins the reason of a rule that needs what was not measured."""
_NOT_VISITED = "the record does not hold what they need; `leadline diagnose MODEL` measures it"
_STYLE = {"serious": "bold red", "warning": "yellow", "note": "dim"}
_LABEL = 10
"""The width of the column of labels, `shows` to `do`, with its indentation."""


def answer_of(diagnosis: Diagnosis) -> list[str]:
    """Say in a sentence or two whether it is healthy, and if not, what is wrong first."""
    counts = Counter(finding.severity for finding in diagnosis.findings)
    looked = _counted(len(diagnosis.coverage.looked), "rule")
    name = text_at(diagnosis.record.provenance, "model", "name")
    if diagnosis.healthy:
        notes = counts["note"]
        below = f" {_counted(notes, 'note')} below, usually benign." if notes else ""
        subject = f"in {name}" if name else "here"
        provenance = diagnosis.record.provenance
        refusal = text_at(provenance, "visit", "refusal")
        if refusal and not value_at(provenance, "anatomy", "layers"):
            return [
                f"No fault found {subject}, but the blocks could not be read: "
                f"{refusal.rstrip('.')}. {looked} looked.{below}"
            ]
        return [f"Nothing unusual {subject}: {looked} looked and found no fault.{below}"]
    words = join_words(
        _counted(counts[severity], _NOUNS[severity]) for severity in SEVERITIES if counts[severity]
    )
    return [f"{f'{name}: ' if name else ''}{words}.", diagnosis.findings[0].verdict]


def _short_run_sentences(diagnosis: Diagnosis) -> list[str]:
    """Say what a copy learned where it was trained for some steps: it was asked for."""
    provenance = diagnosis.record.provenance
    losses: Any = value_at(provenance, "visit", "short_run", "losses")
    steps = value_at(provenance, "visit", "short_run", "steps")
    if not losses:
        return []
    ends = f"from {number_text(float(losses[0]))} to {number_text(float(losses[-1]))}"
    return [f"A copy was trained for {steps} steps on the same few tokens: its loss went {ends}."]


_NOUNS = {"serious": "serious finding", "warning": "warning", "note": "note"}


def finding_json(finding: Finding) -> dict[str, Any]:
    """A finding as strict JSON, with every public field."""
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity,
        "verdict": finding.verdict,
        "stack": finding.stack,
        "layers": list(finding.layers),
        "sublayer": finding.sublayer,
        "head": finding.head,
        "parameter": finding.parameter,
        "evidence": [strict_json(dict(one)) for one in finding.evidence],
        "ruled_out": list(finding.ruled_out),
        "cause": finding.cause,
        "remedy": strict_json(dict(finding.remedy)),
        "confidence": finding.confidence,
        "page": finding.page,
    }


def screen_of(diagnosis: Diagnosis, *, everything: bool = False) -> Screen:
    """Return the answer, the findings, the coverage."""
    parts: list[Sentence | TextTable] = [Sentence(answer_of(diagnosis)[0], "bold")]
    parts += [Sentence(one) for one in _short_run_sentences(diagnosis)]
    parts.append(Sentence())
    findings = diagnosis.findings
    faults = [finding for finding in findings if finding.severity != "note" or everything]
    in_full = faults if everything else faults[:MOST_FINDINGS]
    for finding in in_full:
        parts += [*_finding_lines(finding), Sentence()]
    brief = [finding for finding in findings if finding not in in_full]
    parts += [
        Sentence(finding_line(finding), _STYLE[finding.severity], hang=2) for finding in brief
    ]
    parts.append(Sentence())
    if everything:
        parts += [
            Sentence(f"follows from {code}: {finding_line(finding)}", "dim", hang=2)
            for code, finding in diagnosis.explained
        ]
        parts.append(Sentence())
    parts += _coverage_lines(diagnosis, everything=everything)
    parts += _pointers(diagnosis)
    return Screen(tuple(parts))


def _finding_lines(finding: Finding) -> list[Sentence]:
    place = place_text(finding)
    code = f"{finding.code} {finding.name}".strip() or "found while measuring"
    lines = [Sentence(f"{finding.severity}: {code}{f', {place}' if place else ''}",
                      _STYLE[finding.severity], hang=2)]  # fmt: skip
    lines.append(Sentence(f"  {finding.verdict}", "bold", hang=2))
    remedy = str(finding.remedy.get("words", ""))
    if remedy and finding.remedy.get("edit"):
        remedy += " (safe)" if finding.remedy.get("safe") else ""
    entries = [
        ("shows", [evidence_text(one) for one in finding.evidence]),
        ("not it", list(finding.ruled_out)),
        ("cause", [_unsure(finding)] if finding.cause else []),
        ("do", [remedy] if remedy else []),
    ]
    for label, texts in entries:
        for at, text in enumerate(texts):
            head = label if at == 0 else ""
            lines.append(Sentence(f"  {head:<{_LABEL - 2}}{text}", hang=_LABEL))
    return lines


def _unsure(finding: Finding) -> str:
    """The cause, with how sure it is where it is not certain."""
    sure = finding.confidence
    return finding.cause if sure in (None, "certain") else f"({sure}) {finding.cause}"


def finding_line(finding: Finding) -> str:
    """Write a finding in one line: severity, code, name, verdict."""
    code = f"{finding.code} {finding.name}".strip()
    return ": ".join(word for word in (finding.severity, code, finding.verdict) if word)


def place_text(finding: Finding) -> str:
    """Say where: `decoder layers 2 to 4, mlp, head 3`; empty for the model as a whole."""
    layers = [layer for layer in finding.layers if layer > 0]
    words = [word for word in (finding.stack if layers else "", layers_text(layers)) if word]
    places = [" ".join(words), finding.sublayer or ""]
    if finding.head is not None:
        places.append(f"head {finding.head}")
    if not layers and finding.parameter:
        places.append(finding.parameter)
    return ", ".join(place for place in places if place)


def evidence_text(one: Mapping[str, Any]) -> str:
    """`rms of h.3.mlp.weight: 0.61, expected 0.02 (neighbours in depth)`."""
    text = f"{one['what']}: {number_text(one['value'])}"
    expected = one.get("expected")
    if expected not in ("", None):
        text += f", expected {number_text(expected)}"
    return f"{text} ({one['source']})" if one.get("source") else text


def number_text(value: object) -> str:
    """A number in three digits, a text as it is."""
    if isinstance(value, bool) or not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if value.is_integer() and abs(value) < 1e5 else f"{value:.3g}"


def _coverage_lines(diagnosis: Diagnosis, *, everything: bool) -> list[Sentence]:
    coverage = diagnosis.coverage
    # The answer about what is healthy says already how many looked.
    words = [] if diagnosis.healthy else [f"{_counted(len(coverage.looked), 'rule')} looked."]
    if coverage.ignored:
        words.append(f"{_counted(len(coverage.ignored), 'rule')} left out by choice.")
    lines: list[Sentence] = []
    if coverage.could_not:
        words.append(f"{_counted(len(coverage.could_not), 'rule')} could not look:")
        reasons = _reasons(diagnosis, everything=everything)
        shown = reasons if everything else reasons[:MOST_REASONS]
        lines += [Sentence(f"  {who}: {why}", "dim", hang=4) for who, why in shown]
        if hidden := len(reasons) - len(shown):
            more = f"  {_counted(hidden, 'more reason')}"
            lines.append(Sentence(f"{more}: --all", "dim", f"{more}: print(diagnosis.in_full())"))
    return [Sentence(" ".join(words)), *lines]


def _reasons(diagnosis: Diagnosis, *, everything: bool) -> list[tuple[str, str]]:
    """Who could not look and why, the reason of most first.

    What an option would do is no gap, and told last. A record that no visit made lacks what most
    rules need, each something else: in short that is one reason.
    """
    codes: defaultdict[str, list[str]] = defaultdict(list)
    for code, why in diagnosis.coverage.could_not:
        codes[why].append(code)
    absent = [why for why in codes if why.startswith(NOT_RECORDED)]
    gathered: list[tuple[str, str]] = []
    visited = "visit" in diagnosis.record.provenance
    if not (everything or visited) and len(absent) > MOST_REASONS:
        count = sum(len(codes.pop(why)) for why in absent)
        gathered = [(_counted(count, "rule"), _NOT_VISITED)]
    ordered = sorted(codes, key=lambda why: ("asked for" in why, -len(codes[why])))
    return [*gathered, *((", ".join(codes[why]), why) for why in ordered)]


def _pointers(diagnosis: Diagnosis) -> list[Sentence]:
    """Say how to see more: the page of a rule, and what can be tried."""
    code = next((finding.code for finding in diagnosis.findings if finding.code), "")
    pointers = [f"`leadline explain {code}` tells more of a rule"] if code else []
    if any(finding.remedy.get("edit") for finding in diagnosis.findings):
        pointers.append("--diff shows what a remedy changes, --apply tries it on a copy")
    return [Sentence(), Sentence(f"{'; '.join(pointers)}.", "dim")] if pointers else []


def statistics_table(diagnosis: Diagnosis) -> TextTable:
    """Return how often each rule found something, the most frequent first."""
    counts = Counter((finding.code, finding.name) for finding in diagnosis.findings)
    columns = (
        TableColumn("count", right=True),
        TableColumn("code", style="bold"),
        TableColumn("rule"),
    )
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return TextTable(
        columns, tuple(Row((str(count), code, name)) for (code, name), count in ordered)
    )


def layers_text(layers: Sequence[int], depth: int = 0) -> str:
    """`layer 3`, `layers 2 to 5`, `layers 1 and 4`, `all 12 layers`; empty for none."""
    numbers = sorted(set(layers))
    if not numbers:
        return ""
    if depth > 1 and len(numbers) == depth:
        return f"all {depth} layers"
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = [
        part
        for run in runs
        for part in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run))
    ]
    noun = "layer" if len(numbers) == 1 else "layers"
    return f"{noun} {join_words(words)}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
