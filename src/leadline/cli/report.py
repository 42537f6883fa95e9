"""`leadline report`: a record as a page, as JSON, or in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from leadline.cli.request import options as o
from leadline.cli.request.records import open_records
from leadline.cli.screen.voice import Voice, check_page


def report(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.leadline", help="A record.", show_default=False)
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.html",
            help="Write the report here: one file that needs no network.",
            rich_help_panel=o.OUTPUT,
            show_default=False,
        ),
    ] = None,
    everything: o.Everything = False,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,  # main reads it
) -> None:
    """Show a record again: in the terminal, or as a page with -o."""
    if output is not None:
        check_page(output)

    with Voice(as_json=as_json, quiet=quiet) as voice:
        from leadline.reading.page import as_json as record_to_json
        from leadline.reading.page import report as write_report
        from leadline.reading.page import screen_of

        with voice.progress("Drawing"), open_records(voice, [file]) as [record]:
            if output is not None:
                write_report(record, output)
                voice.say(f"The report is in {output}")
            else:
                voice.show(screen_of(record, everything=everything).show)
            voice.emit(lambda: record_to_json(record))
