"""`leadline compare`: two or more records side by side, in the terminal or on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from leadline.cli.request import options as o
from leadline.cli.request.records import open_records
from leadline.cli.screen.voice import Voice, check_page
from leadline.errors import RecordError


def compare(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE.leadline", help="Two or more records.", show_default=False),
    ],
    names: Annotated[
        str | None,
        typer.Option(
            "--names",
            metavar="A,B,...",
            help="What to call the records, in their order; their models' names otherwise.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.html",
            help="Write the report with all records laid over each other here.",
            rich_help_panel=o.OUTPUT,
            show_default=False,
        ),
    ] = None,
    everything: o.Everything = False,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,  # main reads it
) -> None:
    """Compare records: where they start, end and differ most."""
    if len(files) < 2:
        raise RecordError(
            f"Comparing takes two records or more, one was given; "
            f"`leadline report {files[0]}` shows a single one."
        )
    called = None if names is None else [name.strip() for name in names.split(",")]
    if called is not None and len(called) != len(files):
        raise RecordError(f"--names has {len(called)} names for {len(files)} records.")
    if output is not None:
        check_page(output)

    with Voice(as_json=as_json, quiet=quiet) as voice:
        from leadline.reading.compare.answer import nothing_in_common
        from leadline.reading.compare.compare import compare as compare_records
        from leadline.reading.page import report

        with voice.progress("Comparing"), open_records(voice, files) as records:
            comparison = compare_records(*records, names=called)
            if comparison.shares_nothing:
                raise RecordError(nothing_in_common(comparison, [str(file) for file in files]))
            if output is not None:
                report(records, output, names=called)
        voice.emit(comparison.to_json)
        voice.show(comparison.screen(everything=everything).show)
        if output is not None:
            voice.say(f"The report is in {output}")
