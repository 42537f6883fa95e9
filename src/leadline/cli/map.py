"""`leadline map`: which designs of a sweep train, and how deep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from leadline.cli.request import options as o
from leadline.cli.request.outputs import check_outputs, say_outputs
from leadline.cli.request.records import open_records
from leadline.cli.screen.voice import Voice, check_page, check_writable
from leadline.errors import RecordError

if TYPE_CHECKING:
    from leadline.reading.map.trainability import Trainability
    from leadline.record import Record

MARGIN, SHARE = 0.3, 2 / 3


def map_(
    voice: Voice,
    file: Annotated[Path, o.argument("FILE.leadline", "The record of a sweep.")],
    margin: Annotated[
        float,
        o.option(
            "--margin NATS",
            "A cell trains when its validation loss is so far below the unigram entropy.",
        ),
    ] = MARGIN,
    share: Annotated[
        float,
        o.option(
            "--share SHARE",
            "A place trains when this share of its seeds does; two of three otherwise.",
            show_default=False,
        ),
    ] = SHARE,
    columns: Annotated[str, o.option("--columns AXIS", "The axis that the columns are.")] = "depth",
    output: Annotated[
        Path | None,
        o.option(
            "--output -o FILE",
            "Write the map here: a picture (.svg), or the whole report (.html).",
            o.OUTPUT,
        ),
    ] = None,
    html: o.HtmlFile = None,
    everything: o.Everything = False,
) -> None:
    """Draw the map of what trains from the record of a sweep.

    Rows are designs, columns depths. The usable depth of a row is the largest such that it and
    every smaller measured one train. Beside the loss stands the gauge that predicted it best.
    """
    _check(output)
    check_outputs(None, html)
    from leadline.reading.map.trainability import trainability

    with voice.progress("Drawing"), open_records(voice, [file]) as [record]:
        found = trainability(record, margin=margin, share=share, depth=columns)
        if output is not None:
            _write(output, found, record)
        if html is not None:
            _write(html, found, record)
    voice.emit(found.to_json)
    voice.show(found.screen(everything=everything).show)
    if output is not None:
        voice.say(f"The map is in {output}")
    say_outputs(voice, None, html)


def _write(output: Path, found: Trainability, record: Record) -> None:
    from leadline.reading.map.picture import trainability_picture
    from leadline.reading.page.html import write_html

    if output.suffix.lower() == ".svg":
        output.write_text(trainability_picture(found), encoding="utf-8")
    else:
        write_html([record], output, training_map=found)


def _check(output: Path | None) -> None:
    """Refuse a file that no map can be written to, before any work is done."""
    if output is None:
        return
    kind = output.suffix.lower()
    if kind == ".svg":
        check_writable(output, "map")
    elif kind in {".html", ".htm"}:
        check_page(output)
    else:
        raise RecordError(
            f"The map is a picture or a page, so its name must end in .svg or .html; {output} "
            "does not."
        )
