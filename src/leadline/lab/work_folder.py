"""The folder beside a sweep's record: a lock, and the checkpoint of every cell that runs.

Only one sweep at a time works on a record: it holds the lock as long as it lives, and the system
releases it when the process ends, however it ends. A cell's folder is removed when its rows are
in the record.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from leadline.errors import LabError, require
from leadline.lab.checkpoint import FILE, work_folder
from leadline.record.file.lock import take_lock

__all__ = ["LOCK", "cell_folder", "remove_cell", "saved_step", "working_folder"]

LOCK = "lock"


@contextmanager
def working_folder(path: Path, *, what: str = "sweep") -> Iterator[Path]:
    """Lock the folder of the record at `path` while inside; refuse a second sweep.

    Afterwards only what unfinished cells need is left in it; if that is nothing, it is removed.
    """
    folder = work_folder(path)
    try:
        lock = take_lock(folder / LOCK)
    except OSError as error:
        raise LabError(
            f"The folder {folder} for the checkpoints of the {what} cannot be written: "
            f"{error.strerror}; choose a record in a folder that can."
        ) from error
    if lock is None:
        raise LabError(
            f"Another {what} is working on {path}; wait until it ends, or choose another file."
        )
    try:
        yield folder
    finally:
        checkpoints = [place for place in folder.iterdir() if place.name != LOCK]
        if (
            not checkpoints and os.name != "nt"
        ):  # while locked, so that nobody waits for a file that is gone
            (folder / LOCK).unlink(missing_ok=True)
        lock.close()
        if not checkpoints:
            with suppress(OSError):
                (folder / LOCK).unlink(missing_ok=True)
                folder.rmdir()


def cell_folder(folder: Path, run: str) -> Path:
    """The folder of one cell: the start of its name, and enough of a hash to tell it apart."""
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", run).strip("-")[:40]
    return folder / f"{readable}-{hashlib.sha256(run.encode()).hexdigest()[:10]}"


def remove_cell(folder: Path, run: str) -> None:
    """Remove the folder of a cell whose rows are in the record."""
    shutil.rmtree(cell_folder(folder, run), ignore_errors=True)


def saved_step(folder: Path) -> int:
    """Return the step of the checkpoint in a cell's folder, or -1 if there is none."""
    path = folder / FILE
    if not path.is_file():
        return -1
    try:
        with require("safetensors", extra="hf").safe_open(path, framework="numpy") as file:
            return int(json.loads(file.metadata()["state"])["step"])
    except Exception:  # whatever is wrong with it, no run can go on from it
        return -1
