"""`leadline train`: its table, its files, its refusals."""

import json
import signal
import subprocess
import sys

import pytest

import leadline as ll
from leadline.record import Record
from tests.processes import wait_for

TINY = ["--set=depth=2", "--set=width=16", "--set=heads=2", "--task", "copy"]


def test_a_run_is_shown_and_kept(leadline, tmp_path):
    path, folder = tmp_path / "run.leadline", tmp_path / "model"
    said = leadline("train", *TINY, "--steps", "20", "-o", path, "--save", folder)
    assert said.code == 0, said.err
    assert said.err == ""
    assert "validation.loss" in said.out
    assert f"The record is in {path}" in said.out.replace("\n", "")
    with Record.open(path) as record:
        assert record.provenance["outcome"]["steps"] == 20
    assert ll.load(str(folder)).model.recipe.depth == 2


@pytest.mark.parametrize(
    ("arguments", "every"), [((), 3), (("--set=gauges=30",), 30), (("--set=gauges=0",), 0)]
)
def test_gauges_are_read_often_enough_for_the_alarms(leadline, arguments, every):
    """Most of them need eleven samples, and the default run of 200 steps had five."""
    said = leadline("train", *TINY, "--steps", "60", "--layers", "--json", *arguments)
    found = json.loads(said.out)
    assert found["provenance"]["training"]["gauges"] == every
    assert ll.Training().gauges == 50


def test_json_stands_alone(leadline):
    said = leadline("train", *TINY, "--steps", "10", "--json")
    found = json.loads(said.out)
    assert found["provenance"]["outcome"]["status"] == "finished"


def test_quiet_says_nothing(leadline, tmp_path):
    said = leadline("train", *TINY, "--steps", "5", "--quiet", "-o", tmp_path / "x.leadline")
    assert (said.out, said.err) == ("", "")


def test_a_recipe_is_named_or_read_from_a_file(leadline, tmp_path):
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps({"depth": 3, "width": 16, "heads": 1}))
    said = leadline("train", "--recipe", file, "--task", "copy", "--steps", "2", "--json")
    assert json.loads(said.out)["provenance"]["recipe"]["depth"] == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "dept=3"], "Did you mean 'depth'"),
        (["--set", "steps"], "is not KEY=VALUE"),
        (["--task", "cpoy"], "Did you mean 'copy'"),
        (["--steps", "0"], "steps is 0; give a whole number of at least 1"),
        (["--steps", "3", "--set", "steps=4"], "steps is given twice"),
        (["--set", "connection=deepnrm"], "Did you mean 'deepnorm'"),
        (["-o", "/nowhere/at/all.leadline"], "does not exist"),
        (["--set", "width=30", "--set", "heads=4"], "cannot be divided"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(leadline, arguments, words):
    said = leadline("train", *arguments)
    assert said.code == 2
    assert words in said.err
    assert said.out == ""


def test_a_text_that_is_too_short_is_one_sentence(leadline, tmp_path):
    file = tmp_path / "short.txt"
    file.write_text("too short")
    said = leadline("train", "--task", f"text(path='{file}')")
    assert said.code == 2
    assert "9 bytes" in said.err
    assert leadline("train", "--corpus", file).err == said.err


def test_the_bytes_of_a_folder_are_learned(leadline, tmp_path):
    (tmp_path / "a.txt").write_text("ab" * 20000)
    said = leadline("train", *TINY[:3], "--corpus", tmp_path, "--steps", "2", "--json")
    assert json.loads(said.out)["provenance"]["task"]["name"] == "text"
    both = leadline("train", "--corpus", tmp_path, "--task", "copy")
    assert "leave --task out" in both.err


def test_an_interrupted_run_goes_on(tmp_path, start):
    path = tmp_path / "run.leadline"
    command = [sys.executable, "-m", "leadline.cli.main", "train", *TINY, "-o", str(path)]
    process = start([*command, "--steps", "100000"], stderr=subprocess.PIPE, text=True)
    wait_for(path.exists, of=process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 2
    assert "The same command goes on from there" in err
    assert (tmp_path / "run.leadline.work").is_dir()
