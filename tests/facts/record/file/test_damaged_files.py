"""Damaged record files: each is refused with a sentence, or gives the numbers that were written."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from leadline.errors import RecordError
from leadline.record import Record
from tests.damage import DAMAGES, NAME, read_all, write_sources


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, str]:
    """Files of every sort, and all that is in them."""
    contents: dict[Path, str] = {}
    for path in write_sources(tmp_path_factory.mktemp("sources")):
        with Record.open(path) as record:
            contents[path] = read_all(record)
    return contents


_RIGHT = {"identical", "refused", "unclosed"}
"""What may become of reading a damaged file: the numbers that were written, an error that is a
sentence, or numbers that no checksum vouches for, which the record says."""


def _outcome(path: Path, content: str) -> str:
    """What becomes of reading all of a file: one word."""
    try:
        with Record.open(path) as record:
            if read_all(record) == content:
                return "identical"
            return "different" if record.integrity == "checked" else record.integrity
    except RecordError as error:
        one_sentence = str(error).endswith(".") and "\n" not in str(error)
        return "refused" if one_sentence else f"not a sentence: {error}"
    except Exception as error:
        return f"unexpected {type(error).__name__}: {error}"


def _try_files(sources: dict[Path, str], count: int, *, seed: int) -> Counter[str]:
    """The outcomes of so many damaged files: every damage on every sort of file in turn."""
    chance = random.Random(seed)
    paths = list(sources)
    names = list(DAMAGES)
    outcomes: Counter[str] = Counter()
    for at in range(count):
        source = paths[at // len(names) % len(paths)]
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(source.parent, folder, dirs_exist_ok=True)
            DAMAGES[names[at % len(names)]](Path(folder) / NAME, chance)
            outcome = _outcome(Path(folder) / NAME, sources[source])
        outcomes[outcome] += 1
        if outcome not in _RIGHT:
            print(f"{names[at % len(names)]} of {source.parent.name}: {outcome}")
    return outcomes


def test_of_150_damaged_files_none_gives_other_numbers_and_none_fails_unexpectedly(
    sources: dict[Path, str],
) -> None:
    outcomes = _try_files(sources, 150, seed=0)
    assert set(outcomes) <= _RIGHT
    assert outcomes["refused"] > 75 and outcomes["identical"] > 0


@pytest.mark.slow
def test_of_1000_damaged_files_none_gives_other_numbers_and_none_fails_unexpectedly(
    sources: dict[Path, str],
) -> None:
    outcomes = _try_files(sources, 1000, seed=1)
    print(dict(outcomes))
    assert set(outcomes) <= _RIGHT
    assert outcomes["refused"] > 500 and outcomes["identical"] > 0
