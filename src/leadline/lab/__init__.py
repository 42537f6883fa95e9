"""Open the lab in the browser, and the room where models are trained.

`leadline.lab(records)` shows a folder of records (the present one if none is named), a record or
several: in a frame of a notebook, in a browser, or with `browser=False` by printing the address.
`port` is taken, or the next one that is free. It returns what has an `address` and can `stop()`.

The room holds tasks, the trainer, sweeps and the engines that run their cells.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


class _CallableRoom(ModuleType):
    """This module, which can be called: `leadline.lab` is it, whoever has imported it before."""

    def __call__(
        self, records: Any = None, *, port: int | None = None, browser: bool = True
    ) -> Any:
        """Open the lab in the browser."""
        # The browser's room stands above this one, so that it is imported by name.
        notebook = importlib.import_module("leadline.web.server.notebook")
        return notebook.lab(records, port=port, browser=browser)


sys.modules[__name__].__class__ = _CallableRoom
