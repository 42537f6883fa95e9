"""Bytes of any text: a file, or all texts of a folder.

A file is read as it is, whatever its bytes. Of a folder every file is read that is text (it
decodes as UTF-8 and has no zero byte), sorted by its path inside the folder and joined; hidden
files, those of hidden folders and binary ones are left out and counted in the facts. Windows,
split and entropies: see `ByteTask`. Vocabulary 256, length 64.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from leadline.errors import InputError
from leadline.lab.tasks._task import TASKS
from leadline.lab.tasks.bytes import ByteTask


@TASKS.register("text")
class TextTask(ByteTask):
    """Predict the next byte of a file or of the texts of a folder."""

    name = "text"

    def __init__(self, *, path: str, length: int = 64) -> None:
        self.path = str(path)
        if not self.path.strip():
            raise InputError(
                "The task text was given an empty path; give that of a file or a folder, "
                "`.` for the one you are in."
            )
        place = Path(self.path).expanduser()
        texts, self._left_out = _texts(place)
        self._files = list(texts)
        self.read(b"".join(texts.values()), source=self.path, length=length)

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "files": self._files, "left_out": self._left_out}


def _texts(place: Path) -> tuple[dict[str, bytes], dict[str, int]]:
    """The texts by their path inside the folder, and how many files were left out, by reason."""
    left_out = {"hidden": 0, "binary": 0}
    if place.is_file():
        return {place.name: _bytes(place)}, left_out
    if not place.is_dir():
        raise InputError(f"There is no file or folder {place} to read a text from.")
    texts: dict[str, bytes] = {}
    names = {file.relative_to(place).as_posix(): file for file in place.rglob("*")}
    for name, file in sorted(names.items()):
        if not file.is_file():
            continue
        if any(part.startswith(".") for part in name.split("/")):
            left_out["hidden"] += 1
            continue
        text = _bytes(file)
        if _is_text(text):
            texts[name] = text
        else:
            left_out["binary"] += 1
    if not texts:
        raise InputError(
            f"The folder {place} holds no text: {left_out['hidden']} hidden and "
            f"{left_out['binary']} binary files were left out; give a folder with UTF-8 texts."
        )
    return texts, left_out


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}.") from error


def _is_text(text: bytes) -> bool:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return b"\0" not in text
