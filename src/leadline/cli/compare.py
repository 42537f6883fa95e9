"""`leadline compare`: two or more records side by side, in the terminal or on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from leadline.cli.request import options as o
from leadline.cli.request.records import open_records
from leadline.cli.screen.voice import Voice, check_page
from leadline.errors import RecordError


def compare(
    voice: Voice,
    files: Annotated[list[Path], o.argument("FILE.leadline", "Two or more records.")],
    names: Annotated[
        str | None,
        o.option(
            "--names A,B,...",
            "What to call the records, in their order; their models' names otherwise.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        o.option(
            "--output -o FILE.html",
            "Write the report with all records laid over each other here.",
            o.OUTPUT,
        ),
    ] = None,
    everything: o.Everything = False,
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
