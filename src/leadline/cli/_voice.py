"""How a command speaks: text or JSON on standard output, progress and notes on standard error.

With `--json` standard output holds the JSON and nothing else, even when a model's own code prints.
With `--quiet` nothing is printed but errors (and the JSON, if that was asked for). A progress bar
appears on a terminal when a command takes longer than two seconds.

Text for people fits the width of a terminal. A pipe has no width: it gets every column in full and
one line per sentence, unless the variable `COLUMNS` names a width.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from leadline.errors import RecordError, require

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

PATIENCE = 2.0
"""Seconds before progress is shown."""
NARROWEST = 20
"""Below so many columns no table can be read, so that such a width is taken for a mistake."""


class Voice:
    """Where the words of one command go. Use as a context manager."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self._stdout: TextIO = sys.stdout
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Voice:
        self._stdout = sys.stdout
        if self.as_json:
            self._stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def show(self, draw: Callable[[Console], None]) -> None:
        """Let `draw` print for people; not with --json or --quiet."""
        if not (self.as_json or self.quiet):
            draw(_console(self._stdout))

    def say(self, text: str) -> None:
        """Print a text for people; not with --json or --quiet."""
        if not (self.as_json or self.quiet):
            print(text, file=self._stdout)

    def note(self, text: str) -> None:
        """Print a remark to standard error, where it disturbs no pipe; not with --quiet."""
        if not self.quiet:
            print(wrapped(text, sys.stderr), file=sys.stderr)

    def emit(self, make: Callable[[], Any]) -> None:
        """Print as JSON what `make` returns, if --json was asked for."""
        if self.as_json:
            json.dump(make(), self._stdout, indent=2, allow_nan=False)
            self._stdout.write("\n")

    @contextlib.contextmanager
    def progress(self, doing: str) -> Iterator[Gauge]:
        """Show a progress bar on standard error once the work takes longer than two seconds."""
        gauge = Gauge(doing, silent=self.quiet)
        try:
            yield gauge
        finally:
            gauge.stop()


class Gauge:
    """A progress bar that appears only when it is worth it."""

    def __init__(self, doing: str, *, silent: bool) -> None:
        self._bar: Progress | None = None
        self._state: tuple[str, int, int | None] = (doing, 0, None)
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        if not silent and sys.stderr.isatty():
            self._timer = threading.Timer(PATIENCE, self._appear)
            self._timer.daemon = True
            self._timer.start()

    def __call__(self, doing: str, done: int = 0, total: int | None = None) -> None:
        """Say what is being done, and how much of it: `done` of `total` steps."""
        doing = doing[:1].upper() + doing[1:]
        with self._lock:
            self._state = (doing, done, total)
            if self._bar is not None:
                self._bar.update(
                    self._bar.task_ids[0],
                    description=doing,
                    completed=done,
                    total=total,
                    count=_count(done, total),
                )

    def _appear(self) -> None:
        from rich import progress

        with self._lock:
            if self._timer is None:
                return
            doing, done, total = self._state
            self._bar = progress.Progress(
                progress.TextColumn("{task.description}"),
                progress.BarColumn(),
                progress.TextColumn("{task.fields[count]}"),
                progress.TimeElapsedColumn(),
                console=_console(sys.stderr),
                transient=True,
            )
            self._bar.add_task(doing, completed=done, total=total, count=_count(done, total))
            self._bar.start()

    def stop(self) -> None:
        """Take the bar away."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._bar is not None:
                self._bar.stop()
                self._bar = None


def check_page(path: Path, *, library: str = "plotly") -> None:
    """Refuse a path at which no report can be written, before any work is done."""
    require(library, extra="report")
    if path.suffix.lower() not in {".html", ".htm"}:
        raise RecordError(
            f"The report is a web page, so its name must end in .html; {path} does not."
        )
    check_writable(path, "report")


def check_writable(path: Path, what: str) -> None:
    """Refuse a path that cannot be written, before any work is done.

    A temporary file is made beside it and removed: permissions alone do not tell, for example,
    of a full or read-only disk.
    """
    folder = path.absolute().parent
    if path.is_dir():
        raise RecordError(f"The {what} cannot be written to {path}: it is a folder.")
    if not folder.is_dir():
        raise RecordError(
            f"The {what} cannot be written to {path}: the folder {folder} does not exist."
        )
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise RecordError(
            f"The {what} cannot be written to {path}: {os.strerror(error.errno or 0)}."
        ) from error


def _count(done: int, total: int | None) -> str:
    return "" if total is None else f"{done}/{total}"


def wrapped(text: str, file: TextIO) -> str:
    """Break lines between words where `file` has a width."""
    width = _width_of(file)
    if width is None:
        return text
    return "\n".join(
        textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
        for line in text.split("\n")
    )


def _width_of(file: TextIO) -> int | None:
    """How wide a text for `file` may be: what COLUMNS says, or the terminal; None in a pipe."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked) >= NARROWEST:
        return int(asked)
    if not file.isatty():
        return None
    try:
        return os.get_terminal_size(file.fileno()).columns or None
    except (OSError, ValueError):
        return shutil.get_terminal_size().columns


def _console(file: TextIO) -> Console:
    from rich.console import Console

    width = _width_of(file)
    if width is None:
        # Rich would believe any number in COLUMNS, and print nothing in 0 columns.
        return Console(file=file, highlight=False, width=80 if "COLUMNS" in os.environ else None)
    if file.isatty():
        return Console(file=file, highlight=False, width=width)
    # To rich only a terminal has a width; without colours it is a terminal that shows plain text.
    return Console(file=file, highlight=False, width=width, force_terminal=True, color_system=None)
