"""A folder that is complete or untouched: written beside its place, then renamed.

A file with a list of the others marks it as an export. Only such a folder is replaced, and only as
long as nobody has put anything else into it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from leadline.errors import InputError, MachineError

__all__ = ["MARK", "check_place", "files_of", "written_in_full"]

MARK = "leadline-export.json"
"""The file that says that a folder is an export, and which files are part of it."""


def check_place(folder: Path) -> Path:
    """Return where the export will stand; InputError where something else stands there."""
    place = Path(os.path.realpath(folder))
    if not place.exists():
        return place
    if not place.is_dir():
        raise InputError(f"{folder} is a file; name a folder that is not there yet.")
    if not any(place.iterdir()):
        return place
    try:
        mark = json.loads((place / MARK).read_text("utf-8"))
        listed = set(mark["files"]) | {MARK}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"{folder} is not an export of the lab, so it is not replaced; name a folder that is not "
            "there yet."
        ) from error
    # Looked for behind its mark alone: what else is named may be a whole disk.
    if foreign := sorted(set(files_of(place)) - listed):
        more = "" if len(foreign) == 1 else f" and {len(foreign) - 1} more"
        raise InputError(
            f"{folder} holds {foreign[0]}{more}, which no export wrote and which replacing it would "
            "delete; move that elsewhere, or name another folder."
        )
    return place


def files_of(folder: Path) -> list[str]:
    """Every file below a folder, by its path in it."""
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_symlink() or not path.is_dir()
    )


@contextmanager
def written_in_full(place: Path, *, mark: dict[str, object]) -> Iterator[Path]:
    """Give a folder to write into; put it at its place at the end, or remove it if something fails."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    except OSError as error:
        raise InputError(
            f"Nothing can be written beside {place}: {error.strerror}; name another folder."
        ) from error
    try:
        yield draft
        text = json.dumps({**mark, "files": files_of(draft)}, indent=1, ensure_ascii=False)
        (draft / MARK).write_text(text + "\n", "utf-8")
        draft.chmod(
            0o755
        )  # a temporary folder is its owner's alone, and a web host is somebody else
        _put(draft, place)
    except OSError as error:
        raise MachineError(f"The export could not be written: {error}.") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _put(draft: Path, place: Path) -> None:
    if not place.exists():
        draft.rename(place)
        return
    check_place(place)  # something may have come in while the curves were computed
    former = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    try:
        place.rename(former / "former")
        try:
            draft.rename(place)
        except OSError:
            with suppress(OSError):
                (former / "former").rename(place)
            raise
    finally:
        if place.exists():
            shutil.rmtree(former, ignore_errors=True)
