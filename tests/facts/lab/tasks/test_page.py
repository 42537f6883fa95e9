"""The table of the page on tasks is true, and its Python runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from leadline.lab.tasks import TASKS, build_task

PAGE = (Path(__file__).parents[4] / "docs" / "tasks.md").read_text(encoding="utf-8")
ROWS = {
    row[0].strip("` ").partition("(")[0]: [cell.strip() for cell in row[2:]]
    for row in (line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("| `"))
}
OF_TEXTS = ("stdlib", "text")


def test_the_table_has_every_task():
    assert sorted(ROWS) == TASKS.names()


@pytest.mark.parametrize("name", [name for name in TASKS.names() if name != "text"])
def test_the_table_has_vocabulary_length_and_entropies_of_the_defaults(name):
    task = build_task(name)
    vocabulary, length, unigram, bigram = map(float, ROWS[name])
    assert (vocabulary, length) == (task.vocabulary, task.length)
    found = task.entropies(1500)
    loose = 0.06 if name in OF_TEXTS else 0.012
    assert found.unigram == pytest.approx(unigram, abs=loose)
    assert found.bigram == pytest.approx(bigram, abs=loose)


def test_64_windows_of_the_standard_library_are_a_sample_of_the_whole():
    few, whole = build_task("stdlib").entropies(64), build_task("stdlib").entropies(4096)
    assert few.unigram == pytest.approx(whole.unigram, abs=0.13)


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
