"""What memory there is, and what this process holds, as Linux says it."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from leadline.record.words.numbers import in_bytes

__all__ = ["MemoryPeaks", "free_memory", "in_bytes", "read_from_disk", "return_freed_memory"]


GROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")
_LIMITS = (
    ("", "memory.max", "memory.current", ""),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
)
"""Of both versions of control groups: controller, the files of limit and use, the prefix of parts."""


def free_memory() -> int:
    """Bytes that can be had without swapping: of the machine (MemAvailable), and of a container or
    a job whose memory is limited, where the machine would end this process."""
    machine = _lines(Path("/proc/meminfo"))["MemAvailable"] * 1024
    return min([machine, *_left_in_groups()])


def _left_in_groups() -> Iterator[int]:
    """What the limits of the control groups of this process leave; pages of files can be given up."""
    try:
        lines = OWN_GROUPS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        # 0::/a/job, or 4:memory:/a/job
        _, controllers, path = line.split(":", 2)
        for controller, limit, use, prefix in _LIMITS:
            if controller not in controllers.split(","):
                continue
            root = GROUPS / controller
            inside = root / path.lstrip("/")
            # A container may see its own group as the root, and its path as that of the host.
            for group in {root, inside, *(one for one in inside.parents if root in one.parents)}:
                with contextlib.suppress(OSError, ValueError, KeyError):
                    most, count = (int((group / name).read_text()) for name in (limit, use))
                    parts = _stat(group / "memory.stat")
                    files = sum(parts[f"{prefix}{kind}_file"] for kind in ("active", "inactive"))
                    yield max(0, most - max(0, count - files))


def _stat(path: Path) -> dict[str, int]:
    pairs = (line.split() for line in path.read_text().splitlines())
    return {name: int(value) for name, value in pairs}


def read_from_disk() -> int | None:
    """Bytes that this process has had fetched from a disk; None where the system does not say."""
    try:
        return _lines(Path("/proc/self/io"))["read_bytes"]
    except (OSError, KeyError):
        return None


def return_freed_memory() -> None:
    """Return what was freed to the system: the allocator keeps it, and pass by pass it adds up."""
    with contextlib.suppress(OSError, AttributeError):  # another library than glibc
        ctypes.CDLL("libc.so.6").malloc_trim(0)


@dataclass
class MemoryPeaks:
    """The largest memory of this process at the moments when it was looked at, in bytes.

    `own` is memory that the process has to itself (RssAnon), `files` pages of mapped files (RssFile
    and RssShmem): the system takes those back when it needs them. `both` is the largest sum.
    """

    own: int = 0
    files: int = 0
    both: int = 0

    def look(self) -> None:
        """Take notice of what is held now."""
        lines = _lines(Path("/proc/self/status"))
        own, files = lines["RssAnon"] * 1024, (lines["RssFile"] + lines["RssShmem"]) * 1024
        self.own, self.files = max(self.own, own), max(self.files, files)
        self.both = max(self.both, own + files)


def _lines(path: Path) -> dict[str, int]:
    """The numbers of a file of lines `name: number [kB]`."""
    numbers: dict[str, int] = {}
    for line in path.read_text().splitlines():
        name, _, value = line.partition(":")
        first = value.split()[:1]
        if first and first[0].isdigit():
            numbers[name] = int(first[0])
    return numbers
