"""Damaged record files: each is refused with a sentence, or gives the numbers that were written."""

from __future__ import annotations

import math
import random
import shutil
import sqlite3
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from leadline.cli.main import run
from leadline.errors import RecordError
from leadline.record import Record
from tests.damage import DAMAGES, NAME, read_all, write_sources

Sources = dict[Path, tuple[str, str]]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    """Files of every sort, all that is in them, and what vouches for it."""
    contents: Sources = {}
    for path in write_sources(tmp_path_factory.mktemp("sources")):
        with Record.open(path) as record:
            contents[path] = read_all(record), record.integrity
    return contents


_RIGHT = {"identical", "refused", "unclosed", "without checksums"}
"""What may become of reading a damaged file: the numbers that were written, an error that is a
sentence, or numbers that no checksum vouches for, which the record says."""


def _outcome(path: Path, content: str, integrity: str) -> str:
    """What becomes of reading all of a file: one word."""
    try:
        with Record.open(path) as record:
            if read_all(record) == content:
                return "identical"
            if "checked" in (integrity, record.integrity):
                return "different"
        with closing(sqlite3.connect(path)) as connection:
            structure = connection.execute("PRAGMA integrity_check").fetchone()[0]
        return record.integrity if structure == "ok" else f"structure: {structure}"
    except RecordError as error:
        one_sentence = str(error).endswith(".") and "\n" not in str(error)
        return "refused" if one_sentence else f"not a sentence: {error}"
    except Exception as error:
        return f"unexpected {type(error).__name__}: {error}"


def _try_files(sources: Sources, count: int, *, seed: int) -> Counter[str]:
    """The outcomes of so many damaged files: every damage on every sort of file in turn."""
    chance = random.Random(seed)
    paths = list(sources)
    names = list(DAMAGES)
    assert math.gcd(len(paths), len(names)) == 1
    outcomes: Counter[str] = Counter()
    for at in range(count):
        source = paths[at % len(paths)]  # the lengths have no common divisor: all pairs come
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(source.parent, folder, dirs_exist_ok=True)
            DAMAGES[names[at % len(names)]](Path(folder) / NAME, chance)
            outcome = _outcome(Path(folder) / NAME, *sources[source])
        outcomes[outcome] += 1
        if outcome not in _RIGHT:
            print(f"{names[at % len(names)]} of {source.parent.name}: {outcome}")
    return outcomes


def test_of_150_damaged_files_none_gives_other_numbers_and_none_fails_unexpectedly(
    sources: Sources,
) -> None:
    outcomes = _try_files(sources, 150, seed=0)
    assert set(outcomes) <= _RIGHT
    assert outcomes["refused"] > 75 and outcomes["identical"] > 0


@pytest.mark.slow
def test_of_1000_damaged_files_none_gives_other_numbers_and_none_fails_unexpectedly(
    sources: Sources,
) -> None:
    outcomes = _try_files(sources, 1000, seed=1)
    print(dict(outcomes))
    assert set(outcomes) <= _RIGHT
    assert outcomes["refused"] > 500 and outcomes["identical"] > 0


@pytest.mark.parametrize("command", ["report", "compare", "bounds"])
def test_commands_say_in_a_sentence_what_they_cannot_read(
    sources: Sources,
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    chance, names = random.Random(command), list(DAMAGES)
    codes: Counter[object] = Counter()
    for at, source in enumerate(sources):
        folder = tmp_path / str(at)
        shutil.copytree(source.parent, folder)
        path = folder / NAME
        DAMAGES[names[chance.randrange(len(names))]](path, chance)
        files = [path, source] if command == "compare" else [path]
        page = ["-o", str(folder / "page.html")] if command == "report" else []
        with pytest.raises(SystemExit) as ending:
            run([command, *map(str, files), *page])
        said = capsys.readouterr()
        assert "Unexpected" not in said.err and "Traceback" not in said.err
        codes[ending.value.code or 0] += 1
    assert set(codes) <= {0, 2} and codes[2] > len(sources) / 3
