"""The text that every machine has."""

from __future__ import annotations

import hashlib
import platform
import sys
import sysconfig
from pathlib import Path

import pytest

from leadline.errors import InputError
from leadline.lab.tasks import TASKS, build_task
from leadline.lab.tasks._stdlib_modules import MODULES

FOLDER = Path(sysconfig.get_paths()["stdlib"])


def test_the_list_is_sorted_and_this_python_has_all_of_it():
    assert list(MODULES) == sorted(set(MODULES))
    assert len(MODULES) == 130
    facts = build_task("stdlib").facts()
    assert facts["files"] == list(MODULES)
    assert facts["missing"] == []


def test_the_list_holds_modules_of_python_alone():
    assert {Path(name).stem for name in MODULES} <= set(sys.stdlib_module_names)


@pytest.mark.parametrize(
    "name", ["pathlib", "string", "sysconfig", "zipfile", "datetime", "turtle"]
)
def test_what_other_versions_have_elsewhere_is_not_in_the_list(name):
    assert f"{name}.py" not in MODULES


def test_the_facts_tell_which_text_it_was():
    facts = build_task("stdlib").facts()
    text = b"".join((FOLDER / name).read_bytes() for name in MODULES)
    assert facts["digest"] == hashlib.sha256(text).hexdigest()
    assert facts["bytes"] == len(text)
    assert facts["python"] == platform.python_version()
    assert (facts["vocabulary"], facts["length"], facts["chunk"]) == (256, 64, 4096)
    assert 3_000_000 < facts["bytes"] < 6_000_000
    assert facts["validation_bytes"] / facts["bytes"] == pytest.approx(0.1, abs=0.002)


def test_a_stuck_model_scores_what_the_notes_have():
    found = build_task("stdlib").entropies(4096)
    assert found.unigram == pytest.approx(3.147, abs=0.06)
    assert found.bigram == pytest.approx(2.416, abs=0.06)


def test_a_few_examples_stand_for_the_whole():
    few, many = build_task("stdlib").entropies(256), build_task("stdlib").entropies(4096)
    assert few.unigram == pytest.approx(many.unigram, abs=0.06)


def test_building_it_reads_every_module_once(monkeypatch):
    TASKS.names()
    names, read = [], Path.read_bytes

    def count(path):
        names.append(path.name)
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", count)
    TASKS.build("stdlib")
    assert names == list(MODULES)  # the seconds are in benchmarks/bench_start.py


def test_a_module_that_is_not_there_is_named(tmp_path, monkeypatch):
    for name in MODULES[:-2]:
        (tmp_path / name).write_bytes((FOLDER / name).read_bytes())
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(tmp_path)})
    facts = TASKS.build("stdlib").facts()
    assert facts["missing"] == list(MODULES[-2:])
    assert facts["files"] == list(MODULES[:-2])


def test_a_python_without_the_text_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(tmp_path / "python311.zip")})
    with pytest.raises(InputError, match=r'python311.zip: a zipped .* text\(path="notes.txt"\)'):
        TASKS.build("stdlib")
