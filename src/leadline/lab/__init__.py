"""Where models are trained: tasks, the trainer, sweeps and the engines that run their cells.

`leadline.lab(records)` opens the lab in the browser: the room itself can be called. The browser's room
stands above this one, so that its function is imported by name when it is first called.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """This module, which can be called."""

    def __call__(
        self, records: Any = None, *, port: int | None = None, browser: bool = True
    ) -> Any:
        """Open the lab in the browser; `leadline.web.server.notebook.lab` says more."""
        notebook = importlib.import_module("leadline.web.server.notebook")
        return notebook.lab(records, port=port, browser=browser)


sys.modules[__name__].__class__ = _Room
