"""`leadline reproduce`: noted experiments once more, each with its table and its picture.

The commands are made from the catalog of experiments. depth-limits alone is written here: it is a
sweep, whose result is a record with a page of its own.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from leadline.cli.request import options as o
from leadline.cli.request.commands import takes_options
from leadline.cli.request.experiment import ExperimentCommand, command_of
from leadline.cli.screen.columns import two_columns
from leadline.cli.screen.voice import Voice
from leadline.cli.sweep import sweep
from leadline.experiments import EXPERIMENTS

__all__ = ["depth_limits", "reproduce"]

DEPTH_LIMITS = "depth-limits"

reproduce = typer.Typer(
    name="reproduce",
    rich_markup_mode=None,
    invoke_without_command=True,
    help="Do a noted experiment again: table, picture, records.",
)


@reproduce.callback()
@takes_options
def list_experiments(
    context: typer.Context,
    voice: Voice,
    listing: Annotated[
        bool, o.option("--list", "Name the experiments and the figures they redo.")
    ] = False,
) -> None:
    """Do a noted experiment again: table, picture, records."""
    if context.invoked_subcommand is not None:
        return
    if not (listing or voice.as_json):
        typer.echo(context.get_help())
        raise typer.Exit(2)
    listed = _listed()
    voice.emit(lambda: {"experiments": listed})
    rows = [(one["name"], f"{one['summary']} ({one['redoes']})") for one in listed]
    voice.show(lambda console: two_columns(rows, console))
    voice.say("\n`leadline reproduce NAME` runs one; NAME --help tells its options.")


def _listed() -> list[dict[str, Any]]:
    """Name, what is done again and the first line of the help, of every experiment by name."""
    documented: dict[str, tuple[str, object]] = {
        name: (declared.redoes, declared) for name, declared in EXPERIMENTS.items()
    }
    documented[DEPTH_LIMITS] = ("the depth tables of the card and summary notes", depth_limits)
    return [
        {"name": name, "redoes": of, "summary": (inspect.getdoc(what) or "").partition("\n")[0]}
        for name, (of, what) in sorted(documented.items())
    ]


def depth_limits(
    voice: Voice,
    quick: Annotated[
        bool, o.option("--quick", "The places at which the designs part, in minutes.")
    ] = False,
    seeds: Annotated[
        int | None, o.option("--seeds N", "How many seeds, from 0 on; 3 unless given.")
    ] = None,
    budget: Annotated[
        str | None,
        o.option(
            "--budget TIME",
            "Stop after this time, such as 90s, 30m or 8h; the same command goes on.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        o.option(
            "--output -o FILE.leadline",
            "The record; depth-limits.leadline or depth-limits-quick.leadline unless given.",
            o.OUTPUT,
        ),
    ] = None,
    html: o.HtmlFile = None,
) -> None:
    """How deep can each design be and still train? The map of `leadline sweep --preset depth-limits`.

    Ten designs from 6 to 96 layers, with and without warm-up: hours on a small machine. --quick
    takes minutes. `leadline sweep` has more options.
    """
    sweep(
        voice=voice,
        preset=DEPTH_LIMITS,
        quick=quick,
        seeds=seeds,
        budget=budget,
        output=output,
        html=html,
    )


_COMMANDS = {name: command_of(declared) for name, declared in EXPERIMENTS.items()}
_COMMANDS[DEPTH_LIMITS] = takes_options(depth_limits)
for _name in sorted(_COMMANDS):
    reproduce.command(_name, cls=ExperimentCommand)(_COMMANDS[_name])
