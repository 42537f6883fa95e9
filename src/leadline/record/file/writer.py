"""Who writes a record, as the file beside it says: a process, its machine, and since when.

Whether the process lives can be asked on its own machine alone.
"""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["RecordWriter", "writer_of"]


@dataclass(frozen=True, slots=True)
class RecordWriter:
    """The process that opened a record for writing and has not closed it."""

    process: int
    host: str
    since: str

    @property
    def here(self) -> bool:
        """Whether it runs on this machine."""
        return self.host == platform.node()

    @property
    def lives(self) -> bool | None:
        """Whether the process is there; None where this machine cannot tell."""
        if not self.here or os.name == "nt":  # on Windows the question would end the process
            return None
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return False
        except OSError:  # it belongs to somebody else
            return True
        return True

    def __str__(self) -> str:
        where = "" if self.here else f" on {self.host}"
        return f"process {self.process}{where}"


def writer_of(path: Path) -> RecordWriter | None:
    """Return who writes the record at `path`; None where nobody does, or where it is not known.

    A writer that was killed is still named.
    """
    with suppress(OSError, ValueError):
        process, host, since = Path(f"{os.path.realpath(path)}.writer").read_text().splitlines()
        return RecordWriter(int(process), host, since)
    return None
