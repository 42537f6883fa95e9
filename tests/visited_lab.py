"""The lab as it is started from the command line, and the pages that look at it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DESKTOP, PHONE = (1400, 900), (390, 844)
LONG = 60_000
"""Milliseconds within which another process must have done something."""


class VisitedLab:
    """A lab in a process of its own, and the pages that look at it."""

    def __init__(
        self, folder: Path, browser: Any, start: Callable[..., Any], *options: str
    ) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "leadline", "lab", str(folder), "--no-browser"]
        self.process = start(
            [*command, "--port", "0", *options], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.address = next(word for word in line.split() if word.startswith("http"))
        self.origin = self.address.partition("?")[0]
        self.problems: list[str] = []
        self._browser = browser
        self._contexts: list[Any] = []

    def context(self, *, size: tuple[int, int] = DESKTOP, scheme: str = "light") -> Any:
        context = self._browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, locale="en-GB"
        )
        context.set_default_timeout(LONG)
        self._contexts.append(context)
        return context

    def open(self, view: str, *, context: Any = None, **settings: Any) -> Any:
        """A page that shows a view, such as `#/records`."""
        page = (context or self.context(**settings)).new_page()
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", self._hear)
        page.on("dialog", lambda dialog: self.problems.append(f"dialog {dialog.message}"))
        page.goto(self.address.partition("#")[0] + view)
        return page

    def _hear(self, line: Any) -> None:
        if line.type in ("error", "warning"):
            self.problems.append(line.text)

    def close(self) -> None:
        for context in self._contexts:
            context.close()
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=60)
        if self.process.stdout is not None:
            self.process.stdout.close()
