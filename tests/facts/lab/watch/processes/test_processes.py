"""Watched runs in two processes: what the loop computes, what is read, and that nobody waits.

Every loop is run by `tests/watched_processes.py` over gloo on this machine, with a limit of time:
what hangs fails. All loops of one fixture share two processes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from leadline.record import Reading, Record
from tests.processes import free_port, run_ranks
from tests.watched_processes import FAULTS, run_loop

LIMIT = 300.0
"""Seconds for all loops of one pair of processes: what torch waits for an operation is 60."""
Loop = dict[str, Any]

DATA = {
    "ddp": {"kind": "ddp"},
    "ddp, some unused": {
        "kind": "ddp",
        "unused": True,
        "ddp": {"find_unused_parameters": True},
    },
    "ddp, static": {"kind": "ddp", "ddp": {"static_graph": True}},
    "ddp, compiled": {"kind": "ddp", "ddp": {"compiled": True}},
    "ddp, accumulated and clipped": {"kind": "ddp", "micro": 3, "clip": 0.5},
    "ddp, uneven": {"kind": "ddp", "uneven": True},
    "fsdp": {"kind": "fsdp"},
    "fsdp, accumulated and clipped": {"kind": "fsdp", "micro": 3, "clip": 0.5},
    "fsdp, half": {"kind": "fsdp", "half": True},
    "fsdp, not resharded": {"kind": "fsdp", "fsdp": {"reshard_after_forward": False}},
    "old fsdp": {"kind": "old fsdp"},
    "tensor": {"kind": "tensor", "model": "llama"},
}
"""Loops that are run without a watch and with one."""
EXACT = {
    "ddp": {"kind": "ddp"},
    "ddp, inner module": {"kind": "ddp", "given": "inner", "nameless": True},
    "fsdp": {"kind": "fsdp"},
    "fsdp, given anatomy": {"kind": "fsdp", "anatomy": [0, 1]},
    "fsdp, replicas": {"kind": "fsdp", "replicas": True},
    "tensor": {"kind": "tensor", "model": "llama", "anatomy": [0, 1]},
}
"""Loops in float64 whose rows are those of one process on the whole batch."""
SOME_FAULTS = [("proof", 0), ("forward", 1), ("sending", 1), ("collecting", 0), ("writing", 0)]


def _run(folder: Path, loops: list[Loop], *, store: str = "tcp") -> list[dict[str, Any]]:
    """Run loops in two processes; return what each of them saw, by the loop's name."""
    (folder / "loops.json").write_text(json.dumps(loops))
    port = free_port() if store == "tcp" else 0
    errors = run_ranks("watched_processes.py", str(folder), port=port, limit=LIMIT)
    for rank, error in enumerate(errors):
        assert (folder / f"{rank}.json").exists(), error
    seen = [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]
    for one, error in zip(seen, errors, strict=True):
        one["error"] = error
    return seen


def _watched(loop: Loop, **watch: Any) -> Loop:
    return loop | {"watch": watch}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("processes")


@pytest.fixture(scope="module")
def seen(folder: Path) -> list[dict[str, Any]]:
    loops: list[Loop] = []
    for name, loop in DATA.items():
        loops.append(loop | {"name": f"{name}, alone"})
        loops.append(_watched(loop) | {"name": name})
    for name, loop in EXACT.items():
        loops.append(_watched(loop, attention=True) | {"name": f"{name}, exact", "double": True})
    stops = {"breaks": 3}
    loops += [
        _watched(DATA["ddp"], every=1, stop=True) | stops | {"name": "stopped"},
        _watched(DATA["fsdp"], every=2) | stops | {"name": "asked", "asks": True},
        _watched(DATA["ddp"], every=1, stop=True)
        | stops
        | {"name": "stop of first", "own": "stop"},
        # A watch of one process alone does not disturb those of all that come after it.
        _watched(DATA["ddp"], every=1, stop=True) | stops | {"name": "first", "watching": [0]},
        _watched(DATA["fsdp"]) | {"name": "other steps", "later": 1, "steps": 6},
        _watched(DATA["fsdp"], snapshot=True) | {"name": "at full rate", "steps": 4},
        _watched(DATA["fsdp"]) | {"name": "one alone", "watching": [0], "patience": 1},
        _watched(DATA["fsdp"]) | {"name": "other alone", "watching": [1], "patience": 1},
        _watched(DATA["fsdp"]) | {"name": "one given", "anatomy": [1]},
        _watched(DATA["fsdp"], probe="random:2x8") | {"name": "fixed batch"},
        _watched(DATA["ddp"])
        | {"name": "different models", "kind": "one", "seeds": True, "meets": True},
    ]
    loops += [
        _watched(DATA["fsdp"], every=1)
        | {"name": f"fault {name} {rank}", "fault": name, "faulty": [rank], "patience": 1}
        for name, rank in SOME_FAULTS
    ]
    return _run(folder, loops)


@cache
def _one(folder: Path, **loop: Any) -> dict[str, Any]:
    """The same loop in this process, on the whole batch."""
    loop = {"kind": "one", "watch": {}, "name": "one " + " ".join(map(str, loop.values()))} | loop
    run_loop(loop, folder)
    return _rows(folder / f"{loop['name']}.leadline")


def _rows(path: Path) -> dict[tuple[Any, ...], float]:
    with Record.open(path) as record:
        return {_label(reading): reading.value for reading in record.select()}


def _label(reading: Reading) -> tuple[Any, ...]:
    return reading.quantity, replace(reading, value=0.0).site, reading.statistic, reading.step


# --- the loop --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DATA)
def test_losses_gradients_and_weights_are_those_of_the_run_alone(
    seen: list[dict[str, Any]], name: str
) -> None:
    for rank in (0, 1):
        for what in ("losses", "gradients", "weights"):
            assert seen[rank][name][what] == seen[rank][f"{name}, alone"][what], (rank, what)
        assert seen[rank][name]["step"] == 5


def test_no_loop_ended_with_an_error(seen: list[dict[str, Any]]) -> None:
    assert "Traceback" not in seen[0]["error"] + seen[1]["error"]


# --- the numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXACT)
def test_rows_are_those_of_one_process_on_the_whole_batch(
    seen: list[dict[str, Any]], folder: Path, name: str
) -> None:
    del seen
    model = EXACT[name].get("model", "")
    one = _one(folder, double=True, model=model, watch=_Attention())
    several = _rows(folder / f"{name}, exact.leadline")
    assert set(several) == set(one)
    for label, value in one.items():
        if name == "tensor" and label[0].startswith("attention."):
            continue  # the heads of the first process
        # The logits' tokens are others, and rounding to bfloat16 goes one way or the other.
        near = {"output.log_z": 1e-2, "update.bf16_loss": 1e-3}.get(label[0], 1e-9)
        assert several[label] == pytest.approx(value, rel=near, abs=1e-12), label


class _Attention(dict[str, Any]):
    def __init__(self) -> None:
        super().__init__(attention=True)

    def __hash__(self) -> int:  # type: ignore[override]
        return 0


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_clipped_and_accumulated_gradients_are_those_before_clipping(
    seen: list[dict[str, Any]], folder: Path, kind: str
) -> None:
    del seen
    one = _one(folder, clip=0.5)
    several = _rows(folder / f"{kind}, accumulated and clipped.leadline")
    names = ("train.clipping", "train.gradient_norm", "gradient.parameters", "train.loss")
    labels = [label for label in one if label[0] in (*names, "weights.update_ratio")]
    assert any(one[label] < 0.9 for label in labels if label[0] == "train.clipping")
    for label in labels:
        assert several[label] == pytest.approx(one[label], rel=1e-4), label


def test_a_snapshot_of_sharded_parameters_holds_the_norms_of_the_whole(
    seen: list[dict[str, Any]], folder: Path
) -> None:
    del seen
    one = _one(folder, steps=4, watch=_Snapshot())
    several = _rows(folder / "at full rate.leadline")
    labels = [label for label in one if label[0] == "gradient.parameters" and label[3] == 3]
    assert labels
    for label in labels:
        assert several[label] == pytest.approx(one[label], rel=1e-4), label


class _Snapshot(_Attention):
    def __init__(self) -> None:
        dict.__init__(self, snapshot=True)


def test_half_precision_is_proved_on_gathered_weights(
    seen: list[dict[str, Any]], folder: Path
) -> None:
    assert seen[0]["fsdp, half"]["notes"] == []
    with Record.open(folder / "fsdp, half.leadline") as record:
        assert record.provenance["anatomy"]["balance_dtype"] == "bfloat16"
        assert record.select("update.ratio")


# --- what the record says --------------------------------------------------------------------------


def test_the_record_says_how_many_processes_read_and_what(
    seen: list[dict[str, Any]], folder: Path
) -> None:
    del seen
    facts = {name: _processes(folder, name) for name in ("ddp", "fsdp", "tensor", "first")}
    assert facts["ddp"] == {"count": 2, "sharding": "replicated", "layers": "all"}
    assert facts["fsdp"] == {"count": 2, "sharding": "fsdp", "layers": "all"}
    assert facts["tensor"] == {"count": 2, "sharding": "tensor", "layers": "first"}
    assert facts["first"] == {"count": 2, "sharding": "replicated", "layers": "first"}


def _processes(folder: Path, name: str) -> Any:
    with Record.open(folder / f"{name}.leadline") as record:
        watch = record.provenance["watch"]
        assert isinstance(watch, Mapping)
        return watch["processes"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("tensor", "Under tensor parallelism every pass needs all processes"),
        ("tensor", "layers and losses are those of the first process"),
        ("old fsdp", "sharded by FSDP1 or DeepSpeed"),
        ("first", "put the same line into every process"),
        ("one alone", "nothing comes from process 1"),
        ("one alone", "Process 1 did not take part in the proof"),
        ("one given", "it was given its anatomy"),
        ("fixed batch", "A fixed batch is not measured"),
        ("different models", "they do not train one model together"),
    ],
)
def test_what_is_not_read_is_said(seen: list[dict[str, Any]], name: str, sentence: str) -> None:
    assert any(sentence in note for note in seen[0][name]["notes"]), seen[0][name]["notes"]


def test_tensor_parallel_weights_are_read_without_an_anatomy(
    seen: list[dict[str, Any]], folder: Path
) -> None:
    del seen
    one = _one(folder, model="llama")
    several = _rows(folder / "tensor.leadline")
    total = ("train.gradient_norm", "train.loss")
    for label in [label for label in one if label[0] in total]:
        assert several[label] == pytest.approx(one[label], rel=1e-4), label
    assert any(label[0] == "weights.update_ratio" for label in several)
    assert not any(label[0] == "stream.norm" for label in several)


# --- together --------------------------------------------------------------------------------------


def test_all_processes_stop_at_the_same_update(seen: list[dict[str, Any]]) -> None:
    assert [one["stopped"]["step"] for one in seen] == [3, 3]
    assert "G01" in seen[0]["stopped"]["stopped"]
    assert "first process" in seen[1]["stopped"]["stopped"]


def test_what_the_first_process_wants_of_a_serious_warning_is_done_by_all(
    seen: list[dict[str, Any]],
) -> None:
    assert [one["stop of first"]["step"] for one in seen] == [3, 3]
    assert all(one["stop of first"]["stopped"] for one in seen)


def test_all_processes_are_told_the_same_when_they_ask(seen: list[dict[str, Any]]) -> None:
    assert [one["asked"]["should_stop"] for one in seen] == [[False, False, False, True]] * 2


def test_a_process_that_watches_alone_does_not_stop_alone(seen: list[dict[str, Any]]) -> None:
    assert seen[0]["first"]["step"] == 5
    assert any("training continues" in note for note in seen[0]["first"]["notes"])


def test_all_sample_when_the_first_process_does(seen: list[dict[str, Any]], folder: Path) -> None:
    assert [one["other steps"]["every"] for one in seen] == [2, 2]
    rows = _rows(folder / "other steps.leadline")
    steps = {label[3] for label in rows if label[0] == "gradient.parameters"}
    assert steps == {1, 2, 4, 6}


@pytest.mark.parametrize(("name", "rank"), SOME_FAULTS)
def test_a_fault_in_one_process_disturbs_no_loop(
    seen: list[dict[str, Any]], name: str, rank: int
) -> None:
    _assert_undisturbed(seen, f"fault {name} {rank}", "fsdp, alone", name, rank)


def _assert_undisturbed(
    seen: list[dict[str, Any]], faulty: str, alone: str, name: str, rank: int
) -> None:
    for one in seen:
        assert one[faulty]["weights"] == one[alone]["weights"]
        assert one[faulty]["losses"] == one[alone]["losses"]
    notes = seen[rank][faulty]["notes"]
    assert any(f"a fault in {name}" in note for note in notes), notes


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_no_fault_anywhere_disturbs_a_loop(tmp_path: Path, kind: str) -> None:
    loops: list[Loop] = [DATA[kind] | {"name": "alone"}]
    places = [(name, rank) for name in FAULTS for rank in (0, 1)]
    for name, rank in places:
        fault = {"name": f"{name} {rank}", "fault": name, "faulty": [rank], "patience": 1}
        loops.append(_watched(DATA[kind], every=1) | fault)
    seen = _run(tmp_path, loops)
    assert "Traceback" not in seen[0]["error"] + seen[1]["error"]
    for name, rank in places:
        for one in seen:
            assert one[f"{name} {rank}"]["weights"] == one["alone"]["weights"], (name, rank)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_loop_that_fails_leaves_nobody_waiting(tmp_path: Path, kind: str) -> None:
    loop = _watched(DATA[kind], every=1) | {"name": "failing", "raises": 3}
    (tmp_path / "0.json").write_text("{}")
    (tmp_path / "1.json").write_text("{}")
    seen = _run(tmp_path, [loop])
    assert "the loop of the second process fails" in seen[1]["error"]
    assert "Connection closed by peer" in seen[0]["error"]
    rows = _rows(tmp_path / "failing.leadline")
    assert {label[3] for label in rows if label[0] == "gradient.parameters"} == {1, 2}
    assert all(not math.isnan(value) for value in rows.values())


@pytest.mark.slow
def test_processes_that_meet_by_a_file_exchange_as_well(tmp_path: Path) -> None:
    seen = _run(tmp_path, [_watched(DATA["fsdp"]) | {"name": "fsdp"}], store="file")
    assert seen[0]["fsdp"]["notes"] == []
    assert _processes(tmp_path, "fsdp")["layers"] == "all"
