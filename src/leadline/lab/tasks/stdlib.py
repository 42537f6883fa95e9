"""Bytes of Python's own standard library: a text that every machine has.

The modules of a fixed, sorted list, joined as they are. Another version of Python has another
text: the version and the sha256 of the text stand in the facts, and so do modules of the list
that are not there. Windows, split and entropies: see `ByteTask`. Vocabulary 256, length 64.
"""

from __future__ import annotations

import platform
import sysconfig
from pathlib import Path
from typing import Any

from leadline.errors import InputError
from leadline.lab.tasks._stdlib_modules import MODULES
from leadline.lab.tasks._task import TASKS
from leadline.lab.tasks.bytes import ByteTask


@TASKS.register("stdlib")
class StandardLibrary(ByteTask):
    """Predict the next byte of Python's standard library."""

    name = "stdlib"

    def __init__(self, *, length: int = 64) -> None:
        folder = Path(sysconfig.get_paths()["stdlib"])
        names = [name for name in MODULES if (folder / name).is_file()]
        if not names:
            raise InputError(
                f"The text of Python's standard library is not in {folder}: a zipped or frozen "
                'Python has none; give a text of your own, such as text(path="notes.txt").'
            )
        self._files = names
        self._missing_files = [name for name in MODULES if name not in names]
        text = b"".join((folder / name).read_bytes() for name in names)
        self.read(text, source="Python's standard library", length=length)

    def facts(self) -> dict[str, Any]:
        return {
            **super().facts(),
            "python": platform.python_version(),
            "files": self._files,
            "missing": self._missing_files,
        }
