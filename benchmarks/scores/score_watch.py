"""How often does a watch warn before a run fails, how long before, and how often for nothing?

Small runs that fail in four known ways and healthy ones (`_precursor_sets.py`), each under `ll.watch` with a
sample every five updates. When a run fails is decided by its losses alone. A run counts as warned where a
warning that is more than a note was said at an update before that. The same readings are
asked again as if every twentieth update had been sampled. Outcomes are kept in out/watch as they come, so that an
interrupted run goes on; remove the folder to score again. docs/watch-scores.md is made of them by
tools/watch_scores.py.

    python benchmarks/scores/score_watch.py scoring    one set alone, in this process
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from _harness import Result, median_with_interval
from _precursor_runs import EVERY, Run, failure, failure_beside, train
from _precursor_sets import KINDS, SETS, remembering_less
from leadline.reading.map.binomial import binomial_interval

ROOT = Path(__file__).parents[2]
OUT = ROOT / "out" / "watch"
ALARMS = tuple(
    f"src/leadline/reading/watch/{name}"
    for name in ("alarms", "robust.py", "history.py", "alarm.py")
)
"""What is frozen before runs are scored."""
COARSE = 20
"""Updates between two samples, for the second look at the same runs."""


@dataclass(frozen=True)
class RunOutcome:
    """What became of one run, and what was said of it; `coarse` with fewer samples."""

    set: str
    kind: str
    name: str
    seed: int
    steps: int
    failure: int | None
    warnings: list[dict[str, Any]]
    coarse: list[dict[str, Any]]
    notes: list[str]
    losses: list[float]
    remedied: bool | None = None
    """Of a stale second moment: whether the same run with beta2 0.95 does not fail."""
    alarms: str = ""
    """The commit of the alarms."""

    @property
    def label(self) -> str:
        return f"{self.name}/{self.seed}"

    def said(self, *, coarse: bool = False) -> list[dict[str, Any]]:
        """The warnings before the failure that are more than notes."""
        return [
            one
            for one in (self.coarse if coarse else self.warnings)
            if one["severity"] != "note" and (self.failure is None or one["step"] < self.failure)
        ]

    def lead(self, *, coarse: bool = False, code: str = "") -> int | None:
        """Updates between the first warning (of one alarm) and the failure."""
        steps = [one["step"] for one in self.said(coarse=coarse) if code in ("", one["code"])]
        return self.failure - min(steps) if steps and self.failure else None


@dataclass(frozen=True)
class KindScore:
    """The runs of one kind: how many failed, were warned, and how long before."""

    kind: str
    failed: int
    unfailed: int
    leads: list[int] = field(default_factory=list[int])

    @property
    def interval(self) -> tuple[float, float]:
        return binomial_interval(len(self.leads), self.failed)


def run() -> Iterable[Result]:
    """Score in two processes, then read the outcomes."""
    OUT.mkdir(parents=True, exist_ok=True)
    workers = max(1, os.cpu_count() or 1)
    jobs = [
        subprocess.Popen(
            [sys.executable, __file__, "scoring", f"{at}/{workers}"],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        for at in range(workers)
    ]
    for job in jobs:
        if job.wait():
            raise RuntimeError(f"Scoring ended with {job.returncode}.")
    yield from results()


def results() -> Iterator[Result]:
    """The shares, leads and false alarms of the scoring set."""
    rows = outcomes("scoring")
    for one in score(rows):
        yield Result(
            name=f"{one.kind}: warned before the failure",
            compared=f"{len(one.leads)} of {one.failed} runs",
            ratio=len(one.leads) / max(one.failed, 1),
            target=None,
            repetitions=one.failed,
            spread=one.interval,
            detail={"did not fail": one.unfailed, "alarms": rows[0].alarms},
        )
        if one.leads:
            middle, low, high = median_with_interval(one.leads)
            yield Result(
                name=f"{one.kind}: median lead",
                compared="updates from the first warning to the failure",
                ratio=middle,
                target=None,
                repetitions=len(one.leads),
                spread=(low, high),
                detail={"leads": sorted(one.leads)},
            )
    alarms, steps, runs = false_alarms(rows)
    rates = [1000 * len(one.said()) / one.steps for one in runs]
    yield Result(
        name="healthy runs: false alarms per 1,000 updates",
        compared=f"{len(alarms)} warnings in {steps} updates of {len(runs)} runs",
        ratio=1000 * len(alarms) / steps,
        target=None,
        repetitions=len(runs),
        spread=(min(rates), max(rates)),
        detail={"codes": sorted(one["code"] for one in alarms)},
    )


def score(rows: Sequence[RunOutcome], *, coarse: bool = False) -> list[KindScore]:
    """The score of each kind of failure."""
    scores = []
    for kind in KINDS:
        of_kind = [one for one in rows if one.kind == kind]
        failed = [one for one in of_kind if one.failure is not None]
        leads = [lead for one in failed if (lead := one.lead(coarse=coarse)) is not None]
        scores.append(KindScore(kind, len(failed), len(of_kind) - len(failed), leads))
    return scores


def false_alarms(
    rows: Sequence[RunOutcome], *, coarse: bool = False
) -> tuple[list[dict[str, Any]], int, list[RunOutcome]]:
    """What was said of healthy runs, their updates, and the runs."""
    healthy = [one for one in rows if not one.kind and one.failure is None]
    said = [warning for one in healthy for warning in one.said(coarse=coarse)]
    return said, sum(one.steps for one in healthy), healthy


def outcomes(name: str) -> list[RunOutcome]:
    """What was scored of a set, in the order of the set."""
    rows = [
        RunOutcome(**json.loads(line))
        for file in sorted(OUT.glob(f"{name}.*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    kinds = ["", *KINDS]
    return sorted(rows, key=lambda one: (kinds.index(one.kind), one.name, one.seed))


def score_set(name: str, part: str = "0/1") -> None:
    """Train the runs of a set that are not in its files yet; `part` is which of how many."""
    logging.disable(logging.WARNING)
    OUT.mkdir(parents=True, exist_ok=True)
    at, parts = map(int, part.split("/"))
    known = {one.label for one in outcomes(name)}
    commit = subprocess.run(
        ["git", "log", "-1", "--format=%h", "--", *ALARMS],
        cwd=ROOT, capture_output=True, text=True, check=False,
    ).stdout.strip()  # fmt: skip
    for number, one in enumerate(SETS[name]):
        if number % parts == at and one.label not in known:
            with (OUT / f"{name}.{at}.jsonl").open("a") as file:
                for outcome in judge(name, one, commit):
                    file.write(json.dumps(asdict(outcome)) + "\n")


def judge(name: str, run: Run, commit: str) -> Iterator[RunOutcome]:
    """Train a run, its twin where it has one, and ask the alarms again with fewer samples."""
    trained = _watched(run)
    moment, remedied = failure(trained["losses"]), None
    if run.twin:
        twin = _watched(run.healthy_twin)
        moment = failure_beside(trained["losses"], twin["losses"])
        yield _outcome(name, run.healthy_twin, twin, failure(twin["losses"]), None, commit)
    if run.kind == "moment-stale":
        remedied = failure(train(remembering_less(run), None)["losses"]) is None
    yield _outcome(name, run, trained, moment, remedied, commit)


def _outcome(
    name: str,
    run: Run,
    trained: dict[str, Any],
    moment: int | None,
    remedied: bool | None,
    commit: str,
) -> RunOutcome:
    return RunOutcome(
        name, run.kind, run.name, run.seed, len(trained["losses"]), moment, trained["warnings"],
        trained["coarse"], trained["notes"], [round(one, 4) for one in trained["losses"]], remedied,
        commit,
    )  # fmt: skip


def _watched(run: Run) -> dict[str, Any]:
    from leadline.record import Record

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.leadline"
        trained = train(run, path, every=EVERY)
        with Record.open(path) as record:
            trained["coarse"] = again(record)
    return trained


def again(record: Any, *, every: int = COARSE) -> list[dict[str, Any]]:
    """What a watch would have said that had sampled more seldom; losses are read at every update."""
    from leadline.reading.watch.alarm import Standing, ask_alarms
    from leadline.reading.watch.history import History

    by_step: dict[int, list[Any]] = {}
    for reading in record.select():
        by_step.setdefault(reading.step, []).append(reading)
    history, standing = History(record.quantities.values()), Standing()
    said: list[dict[str, Any]] = []
    for step in sorted(by_step):
        if step != 1 and step % every:
            history.add(one for one in by_step[step] if one.quantity == "train.loss")
            continue
        history.add(by_step[step])
        said += [
            {"code": one.code, "severity": one.severity, "step": step, "layers": list(one.layers)}
            for one in standing.new(ask_alarms(history))
        ]
    return said


def lead_range(leads: Sequence[int]) -> str:
    """The smallest and the largest lead."""
    return f"{min(leads)} to {max(leads)}" if len(leads) else ""


def middle(leads: Sequence[int]) -> float:
    """The median lead."""
    return float(np.median(leads))


if __name__ == "__main__":
    score_set(*sys.argv[1:])
