"""Memory that belongs to files: where a tensor lies in it, and how its pages are given back.

safetensors are read on the CPU by mapping the file, and a tensor of the stored number type is a
view of that mapping. A page of it comes into memory when it is read. `madvise(MADV_DONTNEED)` takes
it out of this process again; the next read brings back the same bytes, from the system's cache of
files or from the disk, so that letting go can cost time and never changes a number.

That holds while nobody has written: a write to a private mapping makes a page of this process's own,
which would be lost. `/proc/self/pagemap` says which pages are such, and their region is left alone.
Pages are given back whole: a region is rounded inward, and what it shares with others stays.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from leadline.errors import LoadingError

__all__ = ["FileMappings", "Region", "check_system", "file_states", "joined", "refuse_changed"]

PAGE = mmap.PAGESIZE
_DONTNEED, _WILLNEED = 4, 3  # of Linux; the module mmap has no names for them everywhere
_PRESENT, _SWAPPED, _OF_A_FILE = np.uint64(1 << 63), np.uint64(1 << 62), np.uint64(1 << 61)


@dataclass(frozen=True)
class Region:
    """A stretch of addresses in the mapping of a file; `shared`: what is written goes to the file."""

    start: int
    end: int
    shared: bool

    @property
    def pages(self) -> tuple[int, int]:
        """The first whole page, and the end of the last one."""
        return -(-self.start // PAGE) * PAGE, self.end // PAGE * PAGE

    def give_back(self) -> bool:
        """Let the pages go; False where one holds what a write has put there, which stays."""
        start, end = self.pages
        if start >= end:
            return True
        if not self.shared and _has_own_pages(start, end):
            return False
        _advise(start, end, _DONTNEED)
        return True

    def read_ahead(self) -> None:
        """Ask the system to fetch the pages from the disk meanwhile."""
        start = self.start // PAGE * PAGE
        _advise(start, self.end, _WILLNEED)


class FileMappings:
    """The files that this process has mapped now."""

    def __init__(self) -> None:
        self._found: list[tuple[Region, str]] = []
        for line in Path("/proc/self/maps").read_text(errors="surrogateescape").split("\n"):
            # 7f01-7f02 rw-p 00000000 fe:00 393  /path of/the file
            parts = line.split(maxsplit=5)
            if len(parts) < 6 or not parts[5].startswith("/") or "x" in parts[1]:
                continue
            start, end = (int(number, 16) for number in parts[0].split("-"))
            self._found.append((Region(start, end, shared="s" in parts[1]), parts[5]))
        self._starts = [region.start for region, _ in self._found]

    def region_of(self, tensor: torch.Tensor) -> Region | None:
        """Where the tensor's values lie in a file; None where they lie in memory of their own."""
        place = self._place(tensor)
        return None if place is None else place[0]

    def file_of(self, tensor: torch.Tensor) -> str | None:
        """The file in which the tensor's values lie."""
        place = self._place(tensor)
        return None if place is None else place[1]

    def of_files(self, is_wanted: Callable[[str], bool]) -> list[Region]:
        """The mappings of all files whose paths are wanted."""
        return [region for region, path in self._found if is_wanted(path)]

    def _place(self, tensor: torch.Tensor) -> tuple[Region, str] | None:
        if tensor.device.type != "cpu" or not tensor.numel():
            return None
        start = tensor.data_ptr()
        at = bisect_right(self._starts, start) - 1
        if at < 0 or start >= self._found[at][0].end:
            return None
        around, path = self._found[at]
        return Region(start, start + tensor.nbytes, around.shared), path


FileState = tuple[int, int, int, int]
"""Device, number, size and time of the last change of a file."""


def file_states(files: Iterable[str | None]) -> dict[str, FileState]:
    """What the system says of files now; those that have no name are nobody else's to change."""
    states: dict[str, FileState] = {}
    for file in files:
        with contextlib.suppress(OSError):
            if file is not None:
                facts = Path(file).stat()
                states[file] = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)
    return states


def refuse_changed(before: dict[str, FileState]) -> None:
    """Refuse files that were written since: a part of what was read is then of another model, and
    the system ends a process that reads behind the new end. One that was removed, or replaced by
    another file of its name, stays as it was for those who have mapped it."""
    for file, now in file_states(before).items():
        if now != before[file] and now[:2] == before[file][:2]:
            raise LoadingError(
                f"{file} was written after it had been loaded, while its weights are streamed from "
                "it; load the model again when nobody writes to its folder any more."
            )


def joined(regions: Iterable[Region]) -> list[Region]:
    """The regions in order, with neighbours made one: what lies between two is less than a page."""
    result: list[Region] = []
    for region in sorted(regions, key=lambda one: one.start):
        if result and region.start - result[-1].end < PAGE and region.shared == result[-1].shared:
            last = result.pop()
            result.append(Region(last.start, max(last.end, region.end), last.shared))
        else:
            result.append(region)
    return result


def check_system() -> None:
    """Refuse to stream where pages cannot be given back as they are here."""
    if sys.platform != "linux" or not os.access("/proc/self/pagemap", os.R_OK):
        raise LoadingError(
            "Streaming gives memory back page by page and needs Linux with /proc; leave out "
            "stream=True (--stream), and the model is loaded whole."
        )


def _has_own_pages(start: int, end: int) -> bool:
    """Whether a page is there, or swapped out, that is not a page of the file."""
    with Path("/proc/self/pagemap").open("rb", buffering=0) as file:
        file.seek(start // PAGE * 8)
        entries = np.frombuffer(file.read((end - start) // PAGE * 8), dtype=np.uint64)
    there = (entries & (_PRESENT | _SWAPPED)) != 0
    return bool((there & ((entries & _OF_A_FILE) == 0)).any())


def _advise(start: int, end: int, advice: int) -> None:
    if _libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), advice):
        number = ctypes.get_errno()
        raise OSError(number, f"madvise {start:x}-{end:x}, {advice}: {os.strerror(number)}")


_libc = ctypes.CDLL(None, use_errno=True)
