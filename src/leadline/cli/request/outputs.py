"""Where a command that makes a record puts it: `-o` and `--html`, checked before the work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leadline.cli.request.options import OUTPUT
from leadline.cli.screen.voice import check_page, check_writable
from leadline.errors import RecordError

if TYPE_CHECKING:
    from leadline.cli.screen.voice import Voice
    from leadline.record import Record

RecordFile = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE.leadline",
        help="Save the record here.",
        rich_help_panel=OUTPUT,
        show_default=False,
    ),
]
PageFile = Annotated[
    Path | None,
    typer.Option(
        "--html",
        metavar="FILE.html",
        help="Write the report here: one file that needs no network.",
        rich_help_panel=OUTPUT,
        show_default=False,
    ),
]


def check_outputs(output: Path | None, html: Path | None) -> None:
    """Refuse outputs that could not be written, before the work."""
    if output is not None:
        from leadline.record.file.unfinished import refuse_foreign

        if output.suffix.lower() in {".html", ".htm"}:
            raise RecordError(
                f"-o writes a record, and {output} looks like a page; "
                f"write --html {output} for the report."
            )
        check_writable(output, "record")
        refuse_foreign(output)
    if html is not None:
        check_page(html)


def write_outputs(record: Record, output: Path | None, html: Path | None) -> None:
    """Save the record and write its report, each where it was asked for."""
    if output is not None:
        record.save(output)
    if html is not None:
        from leadline.reading.page import report

        report(record, html)


def say_outputs(voice: Voice, output: Path | None, html: Path | None) -> None:
    """Say which files were written."""
    for what, path in (("record", output), ("report", html)):
        if path is not None:
            voice.say(f"The {what} is in {path}")
