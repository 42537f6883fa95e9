"""`leadline watch`: a training run, live, from the record that it writes."""

from __future__ import annotations

import io
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, cast

from leadline.cli.request import options as o
from leadline.cli.screen.voice import Voice
from leadline.errors import InputError, RecordError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console
    from rich.text import Text

    from leadline.reading.watch.screen import WatchView
    from leadline.reading.watch.sight import FollowedRun, RunSight

ColorSystem = Literal["auto", "standard", "256", "truecolor", "windows"]
LONGEST_INTERVAL = 86_400
"""Seconds: a day."""
TRIES = 20
"""So often a single look is repeated while the writer holds the file: half a second each."""


def watch(
    voice: Voice,
    file: Annotated[
        Path,
        o.argument("FILE.leadline", "The record of a run; it may be on its way, and still grow."),
    ],
    quantity: Annotated[
        str | None,
        o.option(
            "--quantity NAME",
            "What the map shows, such as update.ratio or update.ratio[mlp]; otherwise what a warning "
            "speaks of, or what has changed most.",
        ),
    ] = None,
    relative: Annotated[
        bool,
        o.option("--relative", "Colour every layer against its own median over the run."),
    ] = False,
    interval: Annotated[float, o.option("--interval SECONDS", "Time between two looks.")] = 2.0,
    once: Annotated[bool, o.option("--once", "Show one screen and leave.")] = False,
) -> None:
    """Show a run while it is trained: how it is doing, its layers over steps, and warnings.

    FILE is what `leadline.watch` in a training loop or `leadline train -o FILE` writes, on this
    machine or on another one that shares the disk. It is looked at now and then until the run has
    ended or Ctrl-C is pressed. Into a pipe, and with --json, one screen is shown.
    """
    if not 0 < interval <= LONGEST_INTERVAL:
        raise InputError(
            f"--interval is {interval:g}; give a number of seconds above 0, at most {LONGEST_INTERVAL:,}."
        )
    from leadline.reading.watch.gauge_table import watch_json
    from leadline.reading.watch.screen import watch_view
    from leadline.reading.watch.sight import FollowedRun

    run = FollowedRun(file)

    def view_of(sight: RunSight, before: WatchView | None = None) -> WatchView:
        shown = None if before is None or before.group is None else str(before.group.address)
        return watch_view(sight, quantity=quantity, before=shown, relative=relative)

    if once or voice.as_json or voice.quiet or not _is_live():
        with voice.progress("Reading the record"):
            view = view_of(_one_look(run))
        voice.emit(lambda: watch_json(view))
        voice.show(_in_terminal(view) if once and _is_live() else view.screen().show)
        return
    with voice.progress("Reading the record"):
        view = view_of(run.look())
    view = _follow(run, view, view_of, interval=interval)
    voice.show(_in_terminal(view))


def _in_terminal(view: WatchView) -> Callable[[Console], None]:
    """Show what fits the terminal above its prompt, so that the answer stays in sight."""

    def show(console: Console) -> None:
        view.screen(width=console.width, height=console.height - 1).show(console)

    return show


def _one_look(run: FollowedRun) -> RunSight:
    """Look once; again, while a writer is in the way before anything was seen."""
    sight = run.look()
    for _ in range(TRIES):
        if sight.state == "waiting":
            raise RecordError(f"There is no record at {run.path}: no such file.")
        if not sight.busy:
            break
        sight = run.look()
    return sight


class _Chooser(Protocol):
    """Chooses what is shown of a sight, given what was shown before."""

    def __call__(self, sight: RunSight, before: WatchView | None = None) -> WatchView: ...


def _follow(run: FollowedRun, view: WatchView, view_of: _Chooser, *, interval: float) -> WatchView:
    """Draw the run again and again, until it has ended or the user leaves; return the last view."""
    from rich.console import Console

    console = Console(highlight=False)
    pause = threading.Event()
    with console.screen(hide_cursor=True) as alternate, suppress(KeyboardInterrupt):
        alternate.update(_drawn(view, console))
        while not view.sight.ended:
            pause.wait(interval)
            view = view_of(run.look(), view)
            alternate.update(_drawn(view, console))
    return view


def _drawn(view: WatchView, console: Console) -> Text:
    """Draw a view for the terminal as large as it is now."""
    from rich.console import Console as RichConsole
    from rich.text import Text

    width, height = console.size
    paper = RichConsole(
        file=io.StringIO(),
        width=width,
        height=height,
        force_terminal=True,
        color_system=cast("ColorSystem", console.color_system),
        highlight=False,
    )
    view.screen(width=width, height=height).show(paper)
    assert isinstance(paper.file, io.StringIO)
    return Text.from_ansi(paper.file.getvalue(), no_wrap=True, overflow="crop")


def _is_live() -> bool:
    """Whether screens can be drawn over each other on the output."""
    from rich.console import Console

    console = Console()
    return console.is_terminal and not console.is_dumb_terminal
