"""The records of a folder, or some that were named: what there is, and what has changed.

A record is known to the page by an id, a digest of its path in the folder. A request names ids alone,
so that no request can name a path. Links that lead out of the folder are not followed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import stat
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leadline.record.file.writer import writer_of
from leadline.web.server.desk import Desk, DeskRefusal
from leadline.web.server.events import EventLog

__all__ = ["RecordFile", "RecordShelf", "record_files"]

SUFFIX = ".leadline"
DEEPEST = 8
"""So many folders below the first are looked into."""
MOST_FILES = 2_000
PAUSE = 1.0
"""Seconds between two looks at the folder, while somebody listens."""
PATIENCE = 1.5
"""Seconds that a list waits for verdicts; the others follow as changes."""
_SKIPPED = {"node_modules", "__pycache__", "site-packages"}
_SUMMARY = "leadline.web.server.summaries:summary_of"


@dataclass(frozen=True, slots=True)
class RecordFile:
    """A file of the folder. `state` changes when the file, its log or its writer does."""

    id: str
    path: Path
    relative: str
    size: int
    writing: bool
    state: tuple[int, ...]


def record_files(folder: Path | None, files: Sequence[Path] = ()) -> list[RecordFile]:
    """List the records below a folder and those that are named, by their paths."""
    listed: dict[str, RecordFile] = {}
    if folder is not None:
        inside = Path(os.path.realpath(folder))
        for path in _walk(inside, depth=DEEPEST):
            if len(listed) == MOST_FILES:
                break
            if Path(os.path.realpath(path)).is_relative_to(inside):
                _enter(listed, path, path.relative_to(inside).as_posix())
    for path in files:
        name = path.name
        if any(one.relative == name for one in listed.values()):
            name = path.absolute().as_posix().lstrip("/")
        _enter(listed, path, name)
    return sorted(listed.values(), key=lambda one: one.relative)


def _walk(folder: Path, *, depth: int) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:  # a folder that may not be read holds nothing for us
        return
    for entry in entries:
        with suppress(OSError):  # a link that leads to itself
            if entry.name.endswith(SUFFIX) and not entry.is_dir():
                yield Path(entry.path)
    for entry in entries:
        hidden = entry.name.startswith(".") or entry.name in _SKIPPED
        if depth and not hidden and entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), depth=depth - 1)


def _enter(listed: dict[str, RecordFile], path: Path, relative: str) -> None:
    with suppress(OSError):  # it went away meanwhile
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):  # opening a pipe would wait for its writer
            return
        state = [facts.st_ino, facts.st_mtime_ns, facts.st_size]
        with suppress(OSError):
            log = Path(f"{path}-wal").stat()
            state += [log.st_mtime_ns, log.st_size]
        writer = writer_of(path)
        writing = writer is not None and writer.lives is not False
        name = hashlib.sha256(relative.encode("utf-8", "surrogateescape")).hexdigest()[:24]
        listed[name] = RecordFile(
            name, path, relative, facts.st_size, writing, (*state, int(writing))
        )


class RecordShelf:
    """The list with its verdicts, kept as long as a file stays as it is."""

    def __init__(self, desk: Desk, *, folder: Path | None, files: Sequence[Path] = ()) -> None:
        self.folder = folder
        self._named = list(files)
        self._desk = desk
        self._files: dict[str, RecordFile] = {}
        self._summaries: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._listeners = 0
        self._told: dict[str, dict[str, Any]] = {}
        self._listed = False
        self.changes = EventLog(most=200)

    async def entries(self) -> list[dict[str, Any]]:
        """Return what the list shows; a verdict that takes long is None and follows as a change."""
        await self._look()
        reading = self._read_missing()
        await asyncio.wait([reading], timeout=PATIENCE)
        entries = [self._entry(file) for file in self._files.values()]
        if self._watching is None:  # what changes before anybody listens is told then
            self._told = {entry["id"]: entry for entry in entries}
            self._listed = True
        return entries

    async def file(self, name: str) -> RecordFile | None:
        """Return the record of this id; None where there is none.

        The folder is looked at anew: a file may have become a link that leads out of it.
        """
        await self._look()
        return self._files.get(name)

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[EventLog]:
        """Look at the folder while inside, and put what changes into the log."""
        self._listeners += 1
        if not self._listed:
            await self._look()
            self._told = {file.id: self._entry(file) for file in self._files.values()}
            self._listed = True
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        try:
            yield self.changes
        finally:
            self._listeners -= 1
            if not self._listeners and self._watching is not None:
                self._watching.cancel()
                self._watching = None

    async def close(self) -> None:
        """Stop looking."""
        self.changes.close()
        for task in (self._watching, self._reading):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def _look(self) -> None:
        files = await asyncio.to_thread(record_files, self.folder, self._named)
        self._files = {file.id: file for file in files}
        for name in self._summaries.keys() - self._files.keys():
            del self._summaries[name]

    def _read_missing(self) -> asyncio.Task[None]:
        """Read the summaries of what is new or has changed, one after the other."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
        return self._reading

    async def _read(self) -> None:
        for file in list(self._files.values()):
            if self._summary(file) is not None:
                continue
            try:
                summary = json.loads(await self._desk.answer(_SUMMARY, str(file.path)))
            except DeskRefusal as refusal:  # it took too long, or ended the process
                verdict = {"level": "serious", "sentence": str(refusal)}
                summary = {"kind": "", "made": "", "status": "damaged", "verdict": verdict}
                summary |= {"quantities": 0, "steps": None}
            self._summaries[file.id] = file.state, summary

    def _summary(self, file: RecordFile) -> dict[str, Any] | None:
        state, summary = self._summaries.get(file.id, (None, None))
        return summary if state == file.state else None

    def _entry(self, file: RecordFile) -> dict[str, Any]:
        # What was known of it before is shown until it has been read again.
        known = self._summary(file) or self._summaries.get(file.id, (None, {}))[1]
        status = known.get("status", "")
        if file.writing and status != "damaged":
            status = "being written"
        return {
            "id": file.id,
            "name": Path(file.relative).name.removesuffix(SUFFIX),
            "path": file.relative,
            "kind": known.get("kind", ""),
            "made": known.get("made", ""),
            "size": file.size,
            "status": status,
            "verdict": known.get("verdict"),
            "quantities": known.get("quantities", 0),
            "steps": known.get("steps"),
        }

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(PAUSE)
            await self._look()
            self._read_missing()
            now = {file.id: self._entry(file) for file in self._files.values()}
            added = [entry for name, entry in now.items() if name not in self._told]
            changed = [
                entry
                for name, entry in now.items()
                if name in self._told and self._told[name] != entry
            ]
            removed = [name for name in self._told if name not in now]
            self._told = now
            if added or changed or removed:
                event = {"event": "records", "added": added, "changed": changed}
                self.changes.add({**event, "removed": removed})
