"""Write docs/diagnosis-scores.md from the outcomes that `make bench ONLY=diagnosis` left in out/diagnosis.

python tools/diagnosis_scores.py out/diagnosis docs/diagnosis-scores.md
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import bench_diagnosis as bench
from leadline.testing.faults.scoring import FaultOutcome, Share, score
from leadline.testing.faults.split import side_of_fault, side_of_host

HEAD = """# How often a diagnosis is right

The rules were tuned on one half of the [fault zoo](diagnosis.md) and of its healthy controls (the tuning
side), and on the wild faults called seen. They were frozen before anything else was scored; what follows
is the first run on the held-out side and on the sealed wild faults. Intervals are those of Clopper and
Pearson, 95 %. `make bench ONLY=diagnosis` scores again. Rules that were changed afterwards are named in
the [changelog](../CHANGELOG.md).
"""


def main(outcomes: str, page: str) -> None:
    """Read the outcomes and write the page."""
    bench.OUT = Path(outcomes)
    Path(page).write_text("\n".join(_lines()) + "\n")


def _lines() -> Iterator[str]:
    yield HEAD
    held = bench.outcomes("held-out")
    yield "## The shares\n"
    yield from _table(
        ("held-out", score([*held, *bench.outcomes("held-out controls")]), bench.TARGETS),
        ("tuning", score([*bench.outcomes("tuning"), *bench.outcomes("tuning controls")]), {}),
    )
    yield "\nBy what was new to the rules (right cause first):\n"
    yield "| cases | right | of | share | 95 % interval |\n|---|---|---|---|---|"
    for name, rows in _novelty(held).items():
        share = Share(name, sum(one.first for one in rows), len(rows))
        low, high = share.interval
        yield f"| {name} | {share.hits} | {share.trials} | {share.value:.3f} | {low:.3f} to {high:.3f} |"
    yield "\n## Wild faults\n"
    yield (
        "Ports of faults that people had, the answer taken from the thread. `right` is a finding with an "
        f"accepted cause among all; the aim was {bench.WILD_TARGET:g}.\n"
    )
    yield from _wild()
    yield "\n## What went wrong on the held-out side\n"
    yield "| case | accepted | said |\n|---|---|---|"
    for one in held:
        if not one.first or one.place is False:
            yield f"| {one.case} | {', '.join(one.causes)}{_at(one.layers)} | {_said(one)} |"
    for one in bench.outcomes("held-out controls"):
        if one.detected or one.error:
            yield f"| {one.case} | nothing: it is healthy | {_said(one)} |"
    yield "\n## Every fault of the held-out side\n"
    yield "| fault | right first | of |\n|---|---|---|"
    by_fault: defaultdict[str, list[FaultOutcome]] = defaultdict(list)
    for one in held:
        by_fault[one.fault].append(one)
    for fault, rows in sorted(by_fault.items()):
        yield f"| {fault} | {sum(one.first for one in rows)} | {len(rows)} |"


def _table(*groups: tuple[str, list[Share], dict[str, float]]) -> Iterator[str]:
    yield "| side | what | hits | of | share | 95 % interval | aim |\n|---|---|---|---|---|---|---|"
    for side, shares, aims in groups:
        for share in shares:
            low, high = share.interval
            aim = f"at least {aims[share.name]:g}" if share.name in aims else ""
            if side == "held-out" and not aim:
                aim = "at most 1 of 80"
            yield (
                f"| {side} | {share.name} | {share.hits} | {share.trials} | {share.value:.3f} | "
                f"{low:.3f} to {high:.3f} | {aim} |"
            )


def _novelty(held: Iterable[FaultOutcome]) -> dict[str, list[FaultOutcome]]:
    groups: dict[str, list[FaultOutcome]] = {
        "new host, known fault": [], "known host, new fault": [], "both new": [],
    }  # fmt: skip
    for one in held:
        new_fault = side_of_fault(one.fault) == "held-out"
        new_host = side_of_host(one.host) == "held-out"
        both = "both new" if new_fault else "new host, known fault"
        groups[both if new_host else "known host, new fault"].append(one)
    return groups


def _wild() -> Iterator[str]:
    from leadline.testing.faults.wild import wild_faults

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
