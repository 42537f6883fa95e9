"""Write docs/diagnosis-scores.md from the outcomes that `make scores ONLY=diagnosis` left in out/diagnosis.

python tools/diagnosis_scores.py out/diagnosis docs/diagnosis-scores.md

A round is scored once, with the rules of its day: a section of the page whose outcomes are not in the folder
stays as it is.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "scores"))

import score_diagnosis as bench
from leadline.testing.faults.fresh.rounds import round_of_fault
from leadline.testing.faults.scoring import FaultOutcome, Share, score

HEAD = """# How often a diagnosis is right

A rule is scored on cases that nobody who wrote it had seen. In the first round the rules were tuned on one
half of the [fault zoo](diagnosis.md) and of its healthy controls and scored on the other half and on the
sealed wild faults. Then what had gone wrong was looked at, rules were changed, frozen again, and scored on
a fresh round: other hosts, other seeds, new faults and new healthy models, dealt and committed before the
rules changed. Intervals are those of Clopper and Pearson, 95 %. `make scores ONLY=diagnosis` scores again.
"""


ROUND_1 = [
    Share("detected", 180, 194),
    Share("right cause first", 168, 194),
    Share("right cause among the findings", 170, 194),
    Share("place right", 80, 93),
    Share("precision", 168, 184),
    Share("healthy models with an alarm", 4, 130),
]
"""What the first rules (commit e99848d) reached on the half that they were not tuned on."""

TUNED = "Cases that the rules were tuned on"
EVERY = "Every fault of the last round"
WILD_HISTORY = (
    "The first rules, when nobody who wrote them had read the sealed threads, were right about 18 of 24 "
    "of them (0.75; 0.53 to 0.90); then these were looked at, too."
)


def main(outcomes: str, page: str) -> None:
    """Read the outcomes and write the page."""
    bench.OUT = Path(outcomes)
    file = Path(page)
    kept = _sections(file.read_text() if file.exists() else "")
    written = {title: "\n".join(lines) for title, lines in _written()}
    order = [*map(str.capitalize, reversed(bench.FRESH)), "Round 1", TUNED, "Wild faults", EVERY]
    texts = [f"## {title}\n\n{text}\n" for title in order if (text := (kept | written).get(title))]
    file.write_text("\n".join([HEAD, *texts]))


def _sections(page: str) -> dict[str, str]:
    """The sections of a page by title."""
    parts = (one.partition("\n") for one in page.split("\n## ")[1:])
    return {title: text.strip() for title, _, text in parts}


def _written() -> Iterator[tuple[str, Iterable[str]]]:
    """The sections whose outcomes are there."""
    for name in bench.FRESH:
        if bench.outcomes(name):
            yield name.capitalize(), _fresh_round(name)
            yield EVERY, _every_fault(name)
    yield "Round 1", _first_round()
    if any(map(bench.outcomes, bench.TUNED)):
        yield TUNED, _tuned()
    if bench.outcomes("sealed"):
        yield "Wild faults", _wild()


def _fresh_round(name: str) -> Iterator[str]:
    rows, controls = bench.outcomes(name), bench.outcomes(f"{name} controls")
    yield f"{bench.FRESH[name]}\n"
    shares = bench.fresh_shares(name)
    yield from _table(*((part, some, bench.TARGETS) for part, some in shares.items()))
    yield "\nBy what was new to the rules (right cause first):\n"
    yield "| cases | right | of | share | 95 % interval |\n|---|---|---|---|---|"
    for kind, some in _novelty(rows).items():
        share = Share(kind, sum(one.first for one in some), len(some))
        low, high = share.interval
        yield f"| {kind} | {share.hits} | {share.trials} | {share.value:.3f} | {low:.3f} to {high:.3f} |"
    yield f"\n### What went wrong in {name}\n"
    yield from _wrong(rows, controls)


def _first_round() -> Iterator[str]:
    yield "The first rules (commit e99848d) on the half of the zoo that they were not tuned on.\n"
    yield from _table(("round-1", ROUND_1, bench.TARGETS))


def _tuned() -> Iterator[str]:
    yield "They flatter: what had gone wrong in them was looked at.\n"
    for name in bench.TUNED:
        rows = [*bench.outcomes(name), *bench.outcomes(f"{name} controls")]
        yield from _table((name, score(rows), {}))


def _every_fault(name: str) -> Iterator[str]:
    yield "| fault | right first | of |\n|---|---|---|"
    by_fault: defaultdict[str, list[FaultOutcome]] = defaultdict(list)
    for one in bench.outcomes(name):
        by_fault[one.fault].append(one)
    for fault, rows in sorted(by_fault.items()):
        yield f"| {fault} | {sum(one.first for one in rows)} | {len(rows)} |"


def _wrong(rows: list[FaultOutcome], controls: list[FaultOutcome]) -> Iterator[str]:
    yield "| case | accepted | said |\n|---|---|---|"
    for one in rows:
        if not one.first or one.place is False:
            yield f"| {one.case} | {', '.join(one.causes)}{_at(one.layers)} | {_said(one)} |"
    for one in controls:
        if one.detected or one.error:
            yield f"| {one.case} | nothing: it is healthy | {_said(one)} |"


def _table(*groups: tuple[str, list[Share], dict[str, float]]) -> Iterator[str]:
    yield "| side | what | hits | of | share | 95 % interval | aim |\n|---|---|---|---|---|---|---|"
    for side, shares, aims in groups:
        for share in shares:
            low, high = share.interval
            aim = f"at least {aims[share.name]:g}" if share.name in aims else ""
            if aims and not aim:
                aim = "at most 1 of 80"
            yield (
                f"| {side} | {share.name} | {share.hits} | {share.trials} | {share.value:.3f} | "
                f"{low:.3f} to {high:.3f} | {aim} |"
            )


def _novelty(rows: Iterable[FaultOutcome]) -> dict[str, list[FaultOutcome]]:
    groups: dict[str, list[FaultOutcome]] = {
        "a fault of the first round in a fresh host": [],
        "a new kind of fault in a fresh host": [],
    }
    known, new = groups.values()
    for one in rows:
        (known if round_of_fault(one.fault) is None else new).append(one)
    return groups


def _wild() -> Iterator[str]:
    from leadline.testing.faults.wild import wild_faults

    yield (
        "Ports of faults that people had, the answer taken from the thread. `right` is a finding with an "
        f"accepted cause among all; the aim was {bench.WILD_TARGET:g}. {WILD_HISTORY}\n"
    )
    means = {one.name: one for one in wild_faults()}
    yield "| half | thread | fault | given beside the model | right | said |\n|---|---|---|---|---|---|"
    for half in ("sealed", "seen"):
        rows = bench.outcomes(half)
        for one in rows:
            fault = means[one.fault]
            extra = [fault.intended] * bool(fault.intended) + ["a reference"] * fault.by_reference
            right = "yes" if one.among else "no"
            given = "; ".join(extra) or "nothing"
            yield f"| {half} | {one.host} | {one.fault} | {given} | {right} | {_said(one)} |"
        yield f"| {half} | | **{sum(one.among for one in rows)} of {len(rows)}** | | | |"


def _said(one: FaultOutcome) -> str:
    if one.error:
        return one.error.partition("\n")[0].replace("|", "/")
    words = [
        f"{name}{_at(layers)}" for name, layers in zip(one.named[:3], one.places[:3], strict=True)
    ]
    return ", ".join(words) or "nothing"


def _at(layers: tuple[int, ...]) -> str:
    return f" (layers {', '.join(map(str, layers))})" if layers else ""


if __name__ == "__main__":
    main(*sys.argv[1:])
