"""The application: its commands, and what happens to errors.

An error that the user can put right is one sentence on standard error and exit code 2, like a
wrong option. Anything else is a fault of Leadline: exit code 1, one sentence, and the traceback
with `--debug`.
"""

from __future__ import annotations

import io
import sys
import traceback
from typing import Annotated, NoReturn

import typer

from leadline import __version__
from leadline.cli.anatomy import anatomy
from leadline.cli.bounds import bounds
from leadline.cli.check import check
from leadline.cli.claims import claims
from leadline.cli.collapse import collapse
from leadline.cli.compare import compare
from leadline.cli.diagnose import diagnose
from leadline.cli.explain import explain
from leadline.cli.jacobian import jacobian
from leadline.cli.lab import lab
from leadline.cli.list import list_
from leadline.cli.lyapunov import lyapunov
from leadline.cli.map import map_
from leadline.cli.measure import measure
from leadline.cli.paths import paths
from leadline.cli.report import report
from leadline.cli.reproduce import reproduce
from leadline.cli.request.commands import takes_options
from leadline.cli.scan import scan
from leadline.cli.screen.help import GroupedCommand
from leadline.cli.screen.voice import wrapped
from leadline.cli.sweep import sweep
from leadline.cli.train import train
from leadline.cli.watch import watch
from leadline.errors import FULL_DISK, LeadlineError, words_of

__all__ = ["app", "run"]

PIPE_CLOSED = 141
"""What a shell says of a program whose reader left: 128 + SIGPIPE, which Windows lacks."""
app = typer.Typer(
    name="leadline",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for _command in (
    *(
        diagnose,
        measure,
        scan,
        compare,
        bounds,
        paths,
        collapse,
        jacobian,
        lyapunov,
        train,
        sweep,
        map_,
        watch,
        report,
        lab,
    ),
    *(reproduce, claims, anatomy, list_, explain, check),
):
    if isinstance(_command, typer.Typer):
        app.add_typer(_command)
    else:
        _name = _command.__name__.rstrip("_")  # map_ and list_ would hide what Python has
        app.command(_name, cls=GroupedCommand)(takes_options(_command))


def _version(asked: bool) -> None:
    if asked:
        print(f"leadline {__version__}")
        raise typer.Exit


@app.callback()
def leadline(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """The depth gauge for Transformers: how signal and gradient travel through a model."""


def run(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and leave with its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without Unicode shows a question mark
            stream.reconfigure(errors="replace")
    debug = "--debug" in arguments
    try:
        app(args=arguments, prog_name="leadline")
    except SystemExit as end:
        # `| head` closes the pipe early. 1 would say that --fail-on found something.
        if isinstance(end.__context__, BrokenPipeError):
            sys.exit(PIPE_CLOSED)
        raise
    except Exception as error:
        if debug:
            traceback.print_exc()
        sentence, code = _answer(error)
        # One sentence is one line in a pipe, whatever line breaks a library put into it.
        print(wrapped(" ".join(f"leadline: {sentence}".split("\n")), sys.stderr), file=sys.stderr)
        sys.exit(code)
    sys.exit(0)


def _answer(error: Exception) -> tuple[str, int]:
    """Return the sentence for an error, and the exit code."""
    if isinstance(error, LeadlineError):
        return str(error), 2
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return (
            "The memory did not suffice. Try fewer or shorter examples, such as --random 1x64, "
            "or --dtype bfloat16.",
            2,
        )
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}.", 2
    if isinstance(error, OSError) and error.errno in FULL_DISK:  # writing names no file
        return f"The disk is full ({error.strerror}): free some space and try again.", 2
    place = traceback.extract_tb(error.__traceback__)[-1]
    if (
        "leadline.instruments.passes.running" in sys.modules
    ):  # else no model has run, and torch need not be imported
        from leadline.models.inputs.forward_errors import is_models_own

        if is_models_own(error):
            return (
                f"The model's own code raised {type(error).__name__} in its forward pass "
                f"({place.filename}, line {place.lineno}): {words_of(error)} Check the model's "
                "forward or its inputs; --debug shows the traceback.",
                2,
            )
    return (
        f"Unexpected {type(error).__name__}: {error} ({place.filename}, line {place.lineno}). "
        "This is a fault of Leadline or of the model's own code; "
        "run again with --debug for the traceback.",
        1,
    )


if __name__ == "__main__":
    run()
