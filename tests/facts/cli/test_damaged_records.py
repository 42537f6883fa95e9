"""The commands that read records, on damaged ones: a sentence and exit code 2, or the same words."""

import json
import random
import resource
import shutil
import sqlite3
from contextlib import closing

import pytest

from leadline.record import Quantity, Reading, Record, Site
from leadline.record.file.unfinished import is_unfinished
from tests.damage import DAMAGES, NAME, write_sources
from tests.synthetic import gpt2_record
from tests.synthetic_sweep import sweep_record

NORM = Quantity("stream.norm", "Norm", "|x|", "sqrt(sum x^2)")
TINY = ["n_layer=6", "n_embd=16", "n_head=2", "vocab_size=50", "n_positions=32"]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return write_sources(tmp_path_factory.mktemp("sources"))


def test_damaged_files_end_every_command_with_a_sentence_or_change_nothing(
    leadline, sources, tmp_path
):
    chance = random.Random(2)
    intact = tmp_path / "intact.leadline"
    gpt2_record().save(intact)
    refused = 0
    for at, (name, damage) in enumerate([*DAMAGES.items()] * 2):
        source = sources[at % len(sources)]
        file = tmp_path / str(at) / NAME
        command = chance.choice(("report", "compare", "bounds", "map"))
        others = [intact] if command == "compare" else []
        shutil.copytree(source.parent, file.parent)
        before = leadline(command, file, *others, "--json")
        damage(file, chance)
        after = leadline(command, file, *others, "--json")
        if after.code == 2:
            refused += 1
            assert after.out == ""
            # A record may be said to be unfinished before the command refuses it.
            assert "\nleadline: " in f"\n{after.err}" or "no checksums yet" in after.err
        elif "no checksums yet" not in after.err:
            assert (after.code, after.out) == (before.code, before.out), name
        assert "Unexpected" not in after.err and "Traceback" not in after.err
    assert refused > len(DAMAGES) / 2


def test_a_file_from_before_checksums_is_shown_with_a_remark(leadline, tmp_path):
    path = tmp_path / "old.leadline"
    gpt2_record().save(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE checksum")
    said = leadline("report", path)
    assert said.code == 0
    assert "was written before records had checksums, so damage would not be noticed" in said.err


@pytest.mark.parametrize("command", ["report", "compare", "bounds", "map"])
def test_a_file_that_was_edited_is_refused_by_name(leadline, tmp_path, command):
    path = tmp_path / "a.leadline"
    gpt2_record().save(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE finding SET verdict = 'All is well.'")
    said = leadline(command, path, *([path] if command == "compare" else []))
    assert said.code == 2 and said.out == ""
    assert said.err == (
        f"leadline: The record {path} was changed or damaged after it was written: the findings do "
        "not match their checksums; the layout of the tables, the provenance, the definitions and "
        "the readings are intact. Copy it again or measure again.\n"
    )


def test_a_file_that_is_still_written_is_shown_and_said_to_be(leadline, tmp_path):
    path = tmp_path / "a.leadline"
    with Record.create(path) as record:
        record.describe(NORM)
        record.append([Reading(NORM.name, Site("decoder", layer), "mean", 2.0) for layer in (0, 1)])
        said = leadline("report", path, "--json")
        quiet = leadline("report", path, "--quiet")
    assert said.code == 0 and json.loads(said.out)["quantities"]["stream.norm"]
    assert said.err == (
        f"{path} is still being written, or its writer was cut off: it has no checksums yet, so "
        "damage would not be noticed.\n"
    )
    assert quiet.err == ""
    assert leadline("report", path).err == ""


def test_a_file_without_checksums_whose_content_makes_no_sense_is_told_in_a_sentence(
    leadline, tmp_path
):
    path = tmp_path / "a.leadline"
    sweep_record().save(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP TABLE checksum")
        connection.execute(
            """UPDATE provenance SET json = replace(json, '"depth": 6', '"depth": "x"')"""
        )
    said = leadline("map", path)
    assert said.code == 2
    assert f"leadline: {path} cannot be shown (ValueError: " in said.err
    assert said.err.endswith(
        "It has no checksums that would tell whether it is damaged; copy it again or measure "
        "again.\n"
    )


def test_a_full_disk_amid_jacobians_says_what_is_kept_and_the_same_command_goes_on(
    leadline, tmp_path
):
    path = tmp_path / "a.leadline"
    tiny = ["--random-init", "gpt2", *(f"--set={pair}" for pair in TINY), "--random", "2x8"]
    command = ["measure", *tiny, "--probes", "jacobian", "-o", path, "--quiet"]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, before[1]))  # the log needs twice as much
    try:
        said = leadline(*command)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert said.code == 2
    assert said.err == (
        f"leadline: Cannot write to the record {path}: the disk is full or fails (disk I/O error). "
        "What it held before is kept; free some space and run the same command again to go on.\n"
    )
    assert is_unfinished(path)
    with Record.open(path) as cut:
        kept = cut.select()
    assert leadline(*command).code == 0
    with Record.open(path) as whole:
        assert whole.integrity == "checked"
        assert whole.select()[: len(kept)] == kept and len(whole) > len(kept)


def test_a_full_disk_under_the_output_of_a_command_is_a_sentence(leadline, tmp_path, monkeypatch):
    from leadline.cli import report

    def write_nothing(*_, **__):
        raise OSError(28, "No space left on device")

    path = tmp_path / "a.leadline"
    gpt2_record().save(path)
    monkeypatch.setattr(report.Voice, "emit", write_nothing)
    said = leadline("report", path, "--json")
    assert (said.code, said.err) == (
        2,
        "leadline: The disk is full (No space left on device): free some space and try again.\n",
    )
