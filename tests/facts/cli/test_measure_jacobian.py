"""`leadline measure --probes jacobian`: what it prints, and how it goes on after an end by force."""

import json
import os
import signal
import subprocess
import sys

import pytest

from leadline.record import Record
from leadline.record.file.unfinished import UNFINISHED
from tests.processes import wait_for

TINY = ["n_layer=3", "n_embd=16", "n_head=2", "vocab_size=50", "n_positions=32"]


@pytest.fixture
def tiny():
    """The arguments for a tiny GPT-2 with random weights and a small random input."""
    return ["--random-init", "gpt2", *(f"--set={pair}" for pair in TINY), "--random", "2x8"]


def test_the_table_shows_every_quantity(leadline, tiny):
    said = leadline("measure", *tiny, "--probes", "jacobian(through=true,smallest=1),lyapunov")
    assert said.code == 0, said.err
    for name in (
        "jacobian.singular",
        "jacobian.smallest",
        "jacobian.norm",
        "jacobian.distance",
        "jacobian.branch",
        "jacobian.leak",
        "jacobian.partial",
        "jacobian.product_of_norms",
        "jacobian.through",
        "lyapunov.growth",
        "lyapunov.exponent",
    ):
        assert name in said.out
    assert "not measured" not in said.out


def test_json_holds_the_intervals_and_the_ranks(leadline, tiny):
    said = leadline("measure", *tiny, "--probes", "jacobian(k=2,branch=false)", "--json")
    found = json.loads(said.out)
    assert "jacobian.branch" not in found["quantities"]
    assert len(found["quantities"]["jacobian.distance"]) == 3
    assert found["provenance"]["coverage"]["refused"] == []


def test_a_record_and_a_page_are_written(leadline, tiny, tmp_path):
    record, page = tmp_path / "a.leadline", tmp_path / "a.html"
    said = leadline("measure", *tiny, "--probes", "jacobian", "-o", record, "--html", page)
    assert said.code == 0, said.err
    assert f"The record is in {record}" in said.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "a.leadline"]
    with Record.open(record) as found:
        ranks = {r.site.rank for r in found.select("jacobian.singular")}
        assert ranks == {None, 1, 2, 3, 4}
        for row in found.select("jacobian.distance"):
            assert row.lower is not None and row.upper is not None
            assert row.lower <= row.value <= row.upper
        assert found.provenance["probes"] == ["jacobian"]
    text = page.read_text(encoding="utf-8")
    assert "Distance of a block from the identity" in text


def test_an_interruption_says_how_far_it_came_and_the_same_command_goes_on(
    leadline, tiny, tmp_path, monkeypatch
):
    from leadline.instruments.jacobian.probes.jacobian import JacobianProbe

    record = tmp_path / "a.leadline"
    linear = JacobianProbe.linear

    def interrupted(self, at, given, tell):
        if at.site.layer == 3:
            raise KeyboardInterrupt
        return linear(self, at, given, tell)

    with monkeypatch.context() as patched:
        patched.setattr(JacobianProbe, "linear", interrupted)
        said = leadline("measure", *tiny, "--probes", "jacobian", "-o", record)
    assert said.code == 2
    assert "unfinished, 2 of 4 parts of it are in the record" in said.err
    assert "give the same command again" in said.err
    read = leadline("report", record, "-o", tmp_path / "half.html")
    assert read.code == 0, read.err
    said = leadline("measure", *tiny, "--probes", "jacobian", "-o", record)
    assert said.code == 0 and "nfinished" not in said.out
    whole = tmp_path / "whole.leadline"
    assert leadline("measure", *tiny, "--probes", "jacobian", "-o", whole).code == 0
    with Record.open(record) as found, Record.open(whole) as expected:
        assert found.select() == expected.select()
    other = leadline("measure", *tiny, "--seed", "1", "--probes", "jacobian", "-o", record)
    assert other.code == 0, "a finished record is written over"


def test_an_interruption_without_a_file_says_that_nothing_is_kept(leadline, tiny, monkeypatch):
    from leadline.instruments.jacobian.probes.jacobian import JacobianProbe

    def interrupted(self, at, given, tell):
        raise KeyboardInterrupt

    monkeypatch.setattr(JacobianProbe, "linear", interrupted)
    said = leadline("measure", *tiny, "--probes", "jacobian")
    assert said.code == 2 and "without -o nothing of it is kept" in said.err


def test_a_record_that_was_cut_off_is_not_written_over(leadline, tiny, tmp_path, monkeypatch):
    from leadline.instruments.jacobian.probes.jacobian import JacobianProbe

    record = tmp_path / "a.leadline"
    linear = JacobianProbe.linear

    def interrupted(self, at, given, tell):
        if at.site.layer == 2:
            raise KeyboardInterrupt
        return linear(self, at, given, tell)

    with monkeypatch.context() as patched:
        patched.setattr(JacobianProbe, "linear", interrupted)
        leadline("measure", *tiny, "--probes", "jacobian", "-o", record)
    said = leadline("measure", *tiny, "--probes", "jacobian(k=2)", "-o", record)
    assert said.code == 2 and "it differs in the probes" in said.err
    said = leadline("measure", *tiny, "-o", record)
    assert said.code == 2 and "cut off" in said.err
    with Record.open(record) as found:
        assert UNFINISHED in found.provenance and len(found) > 0


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="SIGKILL is a signal of POSIX")
def test_a_command_that_is_killed_goes_on_and_ends_with_the_same_rows(leadline, tmp_path, start):
    model = ["--random-init", "gpt2", *(f"--set={pair}" for pair in TINY[1:])]
    model += ["--set=n_layer=24", "--random", "2x16"]
    record, whole = tmp_path / "a.leadline", tmp_path / "whole.leadline"
    command = [sys.executable, "-m", "leadline.cli.main", "measure", *model]
    command += ["--probes", "jacobian", "-o", str(record)]
    for wanted in (2, 5, 9):
        process = start(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda wanted=wanted: _blocks(record) >= wanted, of=process)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    with Record.open(record) as unfinished:
        assert UNFINISHED in unfinished.provenance
    assert leadline("measure", *model, "--probes", "jacobian", "-o", record).code == 0
    assert leadline("measure", *model, "--probes", "jacobian", "-o", whole).code == 0
    with Record.open(record) as found, Record.open(whole) as expected:
        assert found.select() == expected.select()
    assert not (tmp_path / "a.leadline-wal").exists()


def _blocks(path):
    """How many blocks of an unfinished record have ended."""
    try:
        with Record.open(path) as record:
            return len(record.provenance.get(UNFINISHED, {}).get("finished", {}))
    except Exception:
        return 0
