"""A file is read whole, a folder text by text."""

from __future__ import annotations

import hashlib

import pytest

from leadline.errors import CatalogError, InputError
from leadline.lab.tasks import TASKS

TIDES = b"The tide goes out, the tide comes in. " * 200


def text(path, **options):
    return TASKS.build({"name": "text", "path": str(path), **options})


def test_a_file_of_any_bytes_is_read_as_it_is(tmp_path):
    raw = bytes(range(256)) * 30
    (tmp_path / "raw.bin").write_bytes(raw)
    facts = text(tmp_path / "raw.bin").facts()
    assert facts["digest"] == hashlib.sha256(raw).hexdigest()
    assert (facts["bytes"], facts["files"]) == (7680, ["raw.bin"])
    assert facts["left_out"] == {"hidden": 0, "binary": 0}
    assert facts["train_bytes"] + facts["validation_bytes"] == 7680
    assert (facts["chunk"], facts["validation_bytes"]) == (768, 768)
    assert (facts["vocabulary"], facts["length"]) == (256, 64)
    assert facts["options"] == {"path": str(tmp_path / "raw.bin"), "length": 64}


def test_the_texts_of_a_folder_are_joined_in_the_order_of_their_paths(tmp_path):
    files = {
        "b.txt": TIDES,
        "a/z.txt": b"first",
        "a.txt": "wörter".encode(),
        ".hidden": b"no",
        ".git/config": b"no",
        "a/.x/y.txt": b"no",
        "picture.png": b"\x89PNG",
        "zeros.dat": b"text\0",
        "empty.txt": b"",
    }
    for name, raw in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(raw)
    facts = text(tmp_path).facts()
    assert facts["files"] == ["a.txt", "a/z.txt", "b.txt", "empty.txt"]
    assert facts["left_out"] == {"hidden": 3, "binary": 2}
    joined = files["a.txt"] + files["a/z.txt"] + files["b.txt"]
    assert facts["digest"] == hashlib.sha256(joined).hexdigest()


def test_a_path_from_the_home_folder_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "tides.txt").write_bytes(TIDES)
    assert text("~/tides.txt").facts()["bytes"] == len(TIDES)


def test_a_longer_window_needs_a_longer_text(tmp_path):
    (tmp_path / "tides.txt").write_bytes(TIDES)
    assert text(tmp_path / "tides.txt", length=90).length == 90
    with pytest.raises(InputError, match=r"tides.txt has 7,600 bytes.* give 8,080 bytes or more"):
        text(tmp_path / "tides.txt", length=100)


def test_a_path_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"There is no file or folder .*nothing"):
        text(tmp_path / "nothing")


def test_a_folder_without_texts_is_refused_with_what_was_left_out(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"\xff")
    (tmp_path / ".b").write_bytes(b"b")
    with pytest.raises(InputError, match="no text: 1 hidden and 1 binary files were left out"):
        text(tmp_path)


def test_a_file_that_may_not_be_read_is_refused(tmp_path, monkeypatch):
    (tmp_path / "tides.txt").write_bytes(TIDES)

    def refuse(self):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr("pathlib.Path.read_bytes", refuse)
    with pytest.raises(InputError, match=r"tides.txt cannot be read: Permission denied\."):
        text(tmp_path / "tides.txt")


def test_a_text_needs_a_path():
    with pytest.raises(CatalogError, match="The task 'text' needs the option 'path'"):
        TASKS.build("text")


@pytest.mark.parametrize("path", ["", "  "])
def test_an_empty_path_is_not_the_current_folder(path, tmp_path, monkeypatch):
    (tmp_path / "tides.txt").write_bytes(TIDES)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="was given an empty path; give that of a file or a fold"):
        text(path)
    assert text(".").facts()["files"] == ["tides.txt"]
