"""How a command speaks: text or JSON on standard output, progress and notes on standard error.

With `--json` standard output holds the JSON and nothing else, even when a model's own code prints.
With `--quiet` nothing is printed but errors (and the JSON, if that was asked for). A command that
takes longer than two seconds shows how far it is: by a bar on a terminal, elsewhere by lines, a few
a minute.

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
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from leadline.cli.screen.forecast import Forecast
from leadline.errors import RecordError, require

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

PATIENCE = 2.0
"""Seconds before progress is shown."""
ENOUGH_STEPS = 3
ENOUGH_SECONDS = 30.0
"""Fewer steps in less time say nothing of the others: the first one often is the heaviest."""
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
        """Show on standard error how far the work is once it takes longer than two seconds."""
        gauge = Gauge(doing, silent=self.quiet)
        try:
            yield gauge
        finally:
            gauge.stop()


class Gauge:
    """What is being done and how far it is: shown only where it takes long.

    On a terminal it is a bar. Elsewhere it is a line now and then, with the time so far and, once
    some steps are done, an estimate of the time that is left, by the pace of the later ones.
    """

    def __init__(self, doing: str, *, silent: bool) -> None:
        self._file = sys.stderr
        self._state: tuple[str, int, int | None] = (doing, 0, None)
        self._bar: Progress | None = None
        self._started = time.monotonic()
        self._counted: tuple[float, int, int | None] = (self._started, 0, None)
        self._later: deque[tuple[float, int]] = deque()
        self._forecast: Forecast | None = None
        self._shown = False
        self._last = self._started
        self._waiting: list[str] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._silent = silent
        if not silent:
            threading.Thread(target=self._appear, daemon=True).start()

    def __call__(self, doing: str, done: int = 0, total: int | None = None) -> None:
        """Say what is being done, and how much of it: `done` of `total` steps."""
        doing = doing[:1].upper() + doing[1:]
        with self._lock:
            fresh = doing != self._state[0]
            if total != self._counted[2]:
                self._counted = (time.monotonic(), done, total)
                self._later.clear()
            self._state = (doing, done, total)
            if self._forecast is not None:
                self._forecast.reach(done, time.monotonic())
            self._keep_the_later_half(done)
            if self._bar is not None:
                self._update(self._bar)
            elif self._shown and fresh:
                self._print_if_due(after=pause_between_stages(time.monotonic() - self._started))

    def foresee(self, seconds: Sequence[float]) -> None:
        """Take the predicted seconds of all steps from now on."""
        with self._lock:
            self._forecast = Forecast(seconds, time.monotonic())

    def tell(self, result: str) -> None:
        """Print a result before all is done; where all is done at once it is not worth a line."""
        with self._lock:
            if self._silent:
                return
            self._waiting.append(result)
            if self._shown:
                self._print_results()

    def stop(self) -> None:
        """Take the bar away."""
        self._ended.set()
        with self._lock:
            if self._bar is not None:
                self._bar.stop()
                self._bar = None
            self._shown = False

    def _appear(self) -> None:
        if self._ended.wait(PATIENCE):
            return
        with self._lock:
            if self._ended.is_set():
                return
            self._shown = True
            if self._file.isatty():
                self._bar = self._new_bar()
                self._bar.start()
            self._print_results()
            if self._bar is None:
                self._print_if_due(after=0)
        while not self._ended.wait(1):
            with self._lock:
                if self._bar is not None:
                    self._update(self._bar)
                elif self._shown:
                    self._print_if_due(after=pause_without_news(time.monotonic() - self._started))

    def _new_bar(self) -> Progress:
        from rich import progress

        bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TextColumn("{task.fields[count]}"),
            progress.TimeElapsedColumn(),
            console=_console(self._file),
            transient=True,
        )
        bar.add_task("", count="")
        self._update(bar)
        return bar

    def _update(self, bar: Progress) -> None:
        doing, done, total = self._state
        bar.update(
            bar.task_ids[0],
            description=doing,
            completed=done,
            total=total,
            count=", ".join(self._how_far(time.monotonic())),
        )

    def _keep_the_later_half(self, done: int) -> None:
        """Remember when the later half of the steps was done: the first ones may be unlike them."""
        later, (_, first, _) = self._later, self._counted
        if not later or done != later[-1][1]:
            later.append((time.monotonic(), done))
        while len(later) > 1 and 2 * later[1][1] <= first + done:
            later.popleft()

    def _how_far(self, now: float) -> list[str]:
        """The steps done, and an estimate of the time that is left once some are."""
        _, done, total = self._state
        since, first, _ = self._counted
        if total is None:
            return []
        if self._forecast is not None and total == self._forecast.total and done < total:
            from leadline.record.words.numbers import format_clock

            return [f"{done}/{total}", f"about {format_clock(self._forecast.left(now))} left"]
        enough = done - first >= ENOUGH_STEPS or now - since >= ENOUGH_SECONDS
        if not (enough and first < done < total):
            return [f"{done}/{total}"]
        began, before = self._later[0]
        left = (now - began) / (done - before) * (total - done)
        from leadline.record.words.numbers import format_clock

        return [f"{done}/{total}", f"about {format_clock(left)} left"]

    def _print_if_due(self, *, after: float) -> None:
        now = time.monotonic()
        if now - self._last < after:
            return
        self._last = now
        from leadline.record.words.numbers import format_clock

        elapsed = f"{format_clock(now - self._started)} so far"
        line = ", ".join([self._state[0], *self._how_far(now), elapsed])
        print(wrapped(line, self._file), file=self._file, flush=True)

    def _print_results(self) -> None:
        for line in self._waiting:
            if self._bar is None:
                print(wrapped(line, self._file), file=self._file, flush=True)
            else:
                self._bar.console.print(line, markup=False)
        self._waiting.clear()


def pause_between_stages(elapsed: float) -> float:
    """Seconds between two lines where something new is done: short at first, ten at most."""
    return min(10.0, max(2.0, elapsed / 5))


def pause_without_news(elapsed: float) -> float:
    """Seconds between two lines where the same is still being done: ten at first, then longer."""
    return min(60.0, max(10.0, elapsed / 10))


def check_page(path: Path, *, library: str = "") -> None:
    """Refuse a path at which no report can be written, before any work is done.

    `library` is what the page is made with, if it comes with the extra `report`.
    """
    if library:
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


def wrapped(text: str, file: TextIO) -> str:
    """Break lines between words where `file` has a width; control characters are spelled out.

    A sentence may quote a name of somebody's configuration, file or library.
    """
    from leadline.record.words.printable import printable

    text = printable(text, keep="\n\t")
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
