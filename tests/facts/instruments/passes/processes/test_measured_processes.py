"""Measurements by two processes: every number is that of one process, and where one fails all leave.

Every case is run by `tests/measured_processes.py` over gloo on this machine, with a limit of time:
what hangs fails. All cases of one fixture share two processes.
"""

from __future__ import annotations

import json
import math
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from leadline.record import Record
from tests.measured_processes import FAULTS, measured
from tests.processes import free_port, run_ranks

LIMIT = 240.0
"""Seconds for all cases of one pair of processes; torch waits 60 for one of its operations."""
Case = dict[str, Any]

LLAMA = {"model": "llama", "double": True}
EXACT: dict[str, Case] = {
    "ddp": {"kind": "ddp", "double": True},
    "ddp, uneven and padded": {"kind": "ddp", "uneven": True, "masked": True, **LLAMA},
    "fsdp": {"kind": "fsdp", "double": True, "trains": True},
    "tensor": {"kind": "tensor", **LLAMA},
}
"""Measurements in float64 whose rows are those of one process with the whole batch."""
MORE: dict[str, Case] = {
    "fsdp, replicas": {"kind": "fsdp", "double": True, "replicas": True},
    "fsdp, given anatomy": {"kind": "fsdp", "double": True, "anatomy": [0, 1]},
    "fsdp, same inputs": {"kind": "fsdp", "double": True, "shared": True},
    "fsdp, random inputs": {"kind": "fsdp", "double": True, "inputs": "none"},
    "fsdp, sublayers left out": {
        "kind": "fsdp",
        "double": True,
        "measure": {"probes": "stream", "ablate": "sublayer"},
    },
    "ddp, blocks left out": {
        "kind": "ddp",
        "double": True,
        "uneven": True,
        "measure": {"ablate": "block"},
    },
    "ddp, random cotangent": {
        "kind": "ddp",
        "uneven": True,
        "masked": True,
        "measure": {"loss": "random"},
        **LLAMA,
    },
    "ddp, attention": {
        "kind": "ddp",
        "uneven": True,
        "measure": {"probes": "attention,attention_spectrum,attention_product,identity_share"},
        **LLAMA,
    },
}
WITHOUT = {"stream.kurtosis", "stream.massive", "memory.r2"}
"""Quantities that parts of a batch cannot be joined to."""
SOME_FAULTS = [
    ("ddp", "inputs", 0),
    ("ddp", "gradient", 1),
    ("fsdp", "probe", 1),
    ("fsdp", "gradient", 0),
    ("tensor", "anatomy", 0),
    ("tensor", "gradient", 1),
]
REFUSED: dict[str, tuple[Case, str]] = {
    "jacobian": (
        {"kind": "ddp", "measure": {"probes": "stream,jacobian"}},
        "jacobian goes through single blocks",
    ),
    "attention": (
        {"kind": "tensor", "model": "llama", "measure": {"probes": "stream,attention"}},
        "so attention cannot be measured",
    ),
    "old fsdp": ({"kind": "old fsdp"}, "sharded by FSDP (FullyShardedDataParallel)"),
    "one anatomy": ({"kind": "fsdp", "anatomy": [1]}, "asked for different things: anatomy"),
    "first absent": ({"kind": "ddp", "absent": [0], "patience": 1}, "Process 0 has not come"),
    "other absent": ({"kind": "fsdp", "absent": [1], "patience": 1}, "Process 1 has not come"),
}


def _run(folder: Path, cases: list[Case]) -> list[dict[str, Any]]:
    """Make measurements in two processes; return what came of them in each, by the case's name."""
    (folder / "cases.json").write_text(json.dumps(cases))
    errors = run_ranks("measured_processes.py", str(folder), port=free_port(), limit=LIMIT)
    for rank, error in enumerate(errors):
        assert (folder / f"{rank}.json").exists(), error
    outcomes = [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]
    for outcome, error in zip(outcomes, errors, strict=True):
        assert set(outcome) == {case["name"] for case in cases}, error
    return outcomes


def _faulty(kind: str, name: str, rank: int) -> Case:
    model = {"model": "llama"} if kind == "tensor" else {}
    known = [] if name == "anatomy" else [0, 1]
    fault = {"fault": name, "faulty": [rank], "anatomy": known, "trains": True}
    return {"kind": kind, "name": f"{kind} {name} {rank}", **model, **fault}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("measured")


@pytest.fixture(scope="module")
def outcomes(folder: Path) -> list[dict[str, Any]]:
    cases = [case | {"name": name} for name, case in EXACT.items()]
    cases += [_faulty(*one) for one in SOME_FAULTS]
    cases += [case | {"name": name} for name, (case, _) in REFUSED.items()]
    cases += [
        {"kind": kind, "name": f"{kind} alone", "absent": [0, 1], "trains": True, **model}
        for kind, model in (("ddp", {}), ("fsdp", {}), ("tensor", {"model": "llama"}))
    ]
    cases += [
        EXACT["fsdp"] | {"name": "fsdp, double alone", "absent": [0, 1]},
    ]
    return _run(folder, cases)


@cache
def _one(folder: Path, name: str) -> dict[str, Any]:
    """The same measurement in this process, with the whole batch."""
    case = {**EXACT, **MORE}[name]
    return measured(case | {"kind": "one", "name": f"one {name}"}, folder)


def _assert_same(outcomes: list[dict[str, Any]], folder: Path, name: str) -> None:
    one, several = _one(folder, name), outcomes[0][name]
    assert one["error"] is several["error"] is None
    known = {tuple(row[:3]): row[3:] for row in one["rows"] if row[0] not in WITHOUT}
    joined = {tuple(row[:3]): row[3:] for row in several["rows"]}
    assert set(joined) == set(known)
    for label, numbers in known.items():
        # The loss is taken in float32, and an increase is a small difference of two losses.
        close = {"ablation.block": 1e-5, "ablation.sublayer": 1e-5}.get(label[0], 1e-12)
        near = 1e-6 if label[0].startswith("gradient") else 1e-9
        assert [one is None for one in joined[label]] == [one is None for one in numbers]
        for number, wanted in zip(joined[label], numbers, strict=True):
            if wanted is not None:
                assert number == pytest.approx(wanted, rel=near, abs=close, nan_ok=True), label
    facts, wanted = several["notes"], one["notes"]
    assert facts["loss"]["value"] == pytest.approx(wanted["loss"]["value"], rel=1e-6)
    for fact in ("examples", "tokens", "longest", "padded"):
        assert facts["input"][fact] == wanted["input"][fact]
    assert facts["model"]["parameters"] == wanted["model"]["parameters"]
    for joined_facts, one_facts in zip(
        facts.get("attention", ()), wanted.get("attention", ()), strict=True
    ):
        for key in ("module", "heads", "mask", "positions", "stochastic", "shapes"):
            assert joined_facts[key] == one_facts[key]


# --- the numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXACT)
def test_every_number_is_that_of_one_process_with_the_whole_batch(
    outcomes: list[dict[str, Any]], folder: Path, name: str
) -> None:
    _assert_same(outcomes, folder, name)


@pytest.mark.parametrize("name", EXACT)
def test_all_processes_return_the_same_record(
    outcomes: list[dict[str, Any]], folder: Path, name: str
) -> None:
    first, other = (outcome[name] for outcome in outcomes)
    assert first["rows"] == other["rows"]
    assert first["notes"] == other["notes"]
    with Record.open(folder / f"{name}.leadline") as record:
        assert len(record.select()) == len(first["rows"])


@pytest.mark.parametrize("name", EXACT)
def test_weights_are_left_as_they_were(outcomes: list[dict[str, Any]], name: str) -> None:
    assert all(outcome[name]["same"] for outcome in outcomes)


def test_the_record_says_how_many_processes_measured_and_what(
    outcomes: list[dict[str, Any]],
) -> None:
    facts = {name: outcomes[0][name]["notes"]["processes"] for name in EXACT}
    for name, sharding, parts in (
        ("ddp", "replicated", 2),
        ("fsdp", "fsdp", 2),
        ("tensor", "tensor", 1),
    ):
        assert facts[name]["count"] == 2
        assert facts[name]["sharding"] == sharding
        assert facts[name]["parts"] == parts


# --- together or not at all --------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "name", "rank"), SOME_FAULTS)
def test_where_one_process_fails_all_leave_and_training_goes_on(
    outcomes: list[dict[str, Any]], kind: str, name: str, rank: int
) -> None:
    _assert_left(outcomes, outcomes, kind, name, rank)


def _assert_left(
    outcomes: list[dict[str, Any]], alone: list[dict[str, Any]], kind: str, name: str, rank: int
) -> None:
    case = f"{kind} {name} {rank}"
    failed, other = outcomes[rank][case], outcomes[1 - rank][case]
    assert failed["error"] == f"RuntimeError: a fault in {name}"
    assert other["error"].startswith(f"ProcessError: Process {rank} left")
    assert f"a fault in {name}" in other["error"]
    for here in (0, 1):
        assert outcomes[here][case]["same"]
        assert outcomes[here][case]["trains"] == alone[here][f"{kind} alone"]["trains"]


def test_a_measurement_changes_nothing_in_the_training_after_it(
    outcomes: list[dict[str, Any]],
) -> None:
    for outcome in outcomes:
        assert outcome["fsdp"]["trains"] == outcome["fsdp, double alone"]["trains"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_measured_is_refused_by_name(
    outcomes: list[dict[str, Any]], name: str
) -> None:
    case, words = REFUSED[name]
    for rank in {0, 1} - set(case.get("absent", [])):
        assert words in outcomes[rank][name]["error"]


# --- slow --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_more_numbers_are_those_of_one_process(tmp_path: Path) -> None:
    outcomes = _run(tmp_path, [case | {"name": name} for name, case in MORE.items()])
    for name in MORE:
        _assert_same(outcomes, tmp_path, name)


@pytest.mark.slow
def test_what_parts_of_a_batch_do_not_tell_is_left_out_and_said(tmp_path: Path) -> None:
    probes = {"probes": "stream,extremes,recall"}
    cases = [
        {"kind": "ddp", "name": "parts", "measure": probes},
        {"kind": "ddp", "name": "copies", "measure": probes, "shared": True},
    ]
    parts, copies = (_run(tmp_path, cases)[0][name] for name in ("parts", "copies"))
    names = {row[0] for row in copies["rows"]}
    assert names - {row[0] for row in parts["rows"]} == WITHOUT
    assert {one["what"] for one in parts["notes"]["coverage"]["refused"]} >= WITHOUT
    assert not math.isnan(next(row[3] for row in copies["rows"] if row[0] == "memory.r2"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "fsdp", "tensor"])
def test_no_fault_anywhere_leaves_a_process_waiting(tmp_path: Path, kind: str) -> None:
    places = [(name, rank) for name in FAULTS for rank in (0, 1)]
    model = {"model": "llama"} if kind == "tensor" else {}
    alone: Case = {"kind": kind, "name": f"{kind} alone", "absent": [0, 1], "trains": True, **model}
    outcomes = _run(tmp_path, [alone, *(_faulty(kind, *place) for place in places)])
    for name, rank in places:
        only_first = name in ("joining", "record") or (kind, name) == ("fsdp", "anatomy")
        if only_first and rank:
            assert outcomes[0][f"{kind} {name} 1"]["error"] is None
        else:
            _assert_left(outcomes, outcomes, kind, name, rank)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "fsdp", "tensor"])
@pytest.mark.parametrize("rank", [0, 1])
def test_nobody_waits_for_a_process_that_was_killed(tmp_path: Path, kind: str, rank: int) -> None:
    case = _faulty(kind, "gradient", rank) | {"killed": True, "trains": False}
    (tmp_path / "cases.json").write_text(json.dumps([case]))
    errors = run_ranks("measured_processes.py", str(tmp_path), port=free_port(), limit=LIMIT)
    assert not (tmp_path / f"{rank}.json").exists()
    left = tmp_path / f"{1 - rank}.json"
    assert left.exists(), errors[1 - rank]
    error = json.loads(left.read_text())[case["name"]]["error"]
    assert error.startswith("ProcessError: "), error
    words = "cannot be reached any more|has not been heard of"
    assert re.search(words, error), error
