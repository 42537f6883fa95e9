"""`leadline report`: a record as a page, as JSON, or in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from leadline.cli.request import options as o
from leadline.cli.request.records import open_records
from leadline.cli.screen.voice import Voice, check_page


def report(
    voice: Voice,
    file: Annotated[
        Path,
        o.argument("FILE.leadline", "A record, or SCAN.leadline:NAME, one checkpoint of a scan."),
    ],
    output: Annotated[
        Path | None,
        o.option(
            "--html --output -o FILE.html",
            "Write the report here: one file that needs no network.",
            o.OUTPUT,
        ),
    ] = None,
    everything: o.Everything = False,
) -> None:
    """Show a record again: in the terminal, or as a page with --html."""
    if output is not None:
        check_page(output)

    from leadline.reading.page import as_json as record_to_json
    from leadline.reading.page import report as write_report
    from leadline.reading.page import screen_of

    with voice.progress("Drawing"), open_records(voice, [file], scans=True) as [record]:
        if output is not None:
            write_report(record, output)
            voice.say(f"The report is in {output}")
        else:
            voice.show(screen_of(record, everything=everything).show)
        voice.emit(lambda: record_to_json(record))
