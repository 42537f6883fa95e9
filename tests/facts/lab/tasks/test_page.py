"""The table of the page on tasks is true, and its Python runs."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import pytest

from leadline.lab.tasks import TASKS, build_task
from leadline.lab.training import Training

PAGE = (Path(__file__).parents[4] / "docs" / "tasks.md").read_text(encoding="utf-8")
ROWS = {
    row[0].strip("` ").partition("(")[0]: [cell.strip() for cell in row[2:]]
    for row in (line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("| `"))
}
OF_TEXTS = ("stdlib", "text")
SAME_TEXT = f"Python {platform.python_version()}" in PAGE


def test_the_table_has_every_task():
    assert sorted(ROWS) == TASKS.names()


@pytest.mark.parametrize("name", [name for name in TASKS.names() if name != "text"])
def test_the_table_has_vocabulary_length_and_entropies_of_the_defaults(name):
    task = build_task(name)
    vocabulary, length, unigram, bigram = ROWS[name]
    assert (float(vocabulary), float(length)) == (task.vocabulary, task.length)
    found = task.entropies(1741 if name == "addition" else 4096)
    if name in OF_TEXTS and not SAME_TEXT:
        assert found.unigram == pytest.approx(float(unigram), abs=0.06)
        assert found.bigram == pytest.approx(float(bigram), abs=0.06)
    else:
        assert (f"{found.unigram:.2f}", f"{found.bigram:.2f}") == (unigram, bigram)


def test_4096_windows_of_the_standard_library_stand_for_all_of_them():
    task = build_task("stdlib")
    some, more = task.entropies(4096), task.entropies(40_000)
    assert some.unigram == pytest.approx(more.unigram, abs=0.002)
    assert some.bigram == pytest.approx(more.bigram, abs=0.002)


def test_64_windows_of_the_standard_library_are_a_sample_of_the_whole():
    told = re.findall(r"by ([\d,]+) (?:windows|\(as)[^.]*? (?:is|default\)) (\d\.\d\d)", PAGE)
    assert [windows for windows, _ in told] == ["64", str(Training().examples)]
    whole = build_task("stdlib").entropies(4096).unigram
    for windows, unigram in told:
        found = build_task("stdlib").entropies(int(windows)).unigram
        assert found == pytest.approx(whole, abs=0.13)
        if SAME_TEXT:
            assert f"{found:.2f}" == unigram


def test_the_python_of_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    try:
        for block in re.findall(r"```python\n(.*?)```", PAGE, re.S):
            exec(compile(block, "docs/tasks.md", "exec"), names)
        answers = names["build_task"]("reversal(items=3)").train(0, 9, seed=0)
        assert answers.targets[:, 3:].tolist() == answers.ids[:, :3].flip(1).tolist()
    finally:
        TASKS._entries.pop("reversal", None)
    assert "Entropies(unigram=2.0" in capsys.readouterr().out
