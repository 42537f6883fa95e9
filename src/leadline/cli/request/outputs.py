"""Where a command leaves its record: a file, a page, JSON, or the terminal alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from leadline.cli.screen.voice import Gauge, Voice, check_page, check_writable
from leadline.errors import ProbeError, RecordError

if TYPE_CHECKING:
    from leadline.models.loading import LoadedModel
    from leadline.record import Record

__all__ = [
    "check_outputs",
    "deliver_view",
    "nothing_kept",
    "say_missing",
    "say_outputs",
    "say_streaming",
    "write_outputs",
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


def say_missing(voice: Voice, loaded: LoadedModel) -> None:
    """Say which weights the file of a model does not have, and how it was streamed."""
    from leadline.models.streaming.pager import pager_of

    if (pager := pager_of(loaded.model)) is not None:
        voice.note(pager.in_words())
    if loaded.missing:
        voice.note(f"Not in the file, so random: {', '.join(loaded.missing)}.")


def say_streaming(gauge: Gauge, loaded: LoadedModel) -> None:
    """Say, where the work takes long, that the weights are streamed, and why."""
    from leadline.models.streaming.pager import pager_of

    if (pager := pager_of(loaded.model)) is not None:
        gauge.tell(f"The weights are streamed from their files, because {pager.why}.")


def say_outputs(
    voice: Voice, output: Path | None, html: Path | None, *, remind: bool = False
) -> None:
    """Say which files were written, or with `remind` how to write them where none was."""
    for what, path in (("record", output), ("report", html)):
        if path is not None:
            voice.say(f"The {what} is in {path}")
    if remind and output is None and html is None and not voice.as_json:
        voice.note("Not saved; -o FILE.leadline keeps the record, --html FILE the report.")


@contextmanager
def nothing_kept(what: str = "measurement") -> Iterator[None]:
    """Say in a sentence that what was interrupted left nothing behind."""
    try:
        yield
    except KeyboardInterrupt:
        raise ProbeError(f"The {what} was interrupted, and nothing of it is kept.") from None


def deliver_view(
    voice: Voice,
    record: Record,
    *,
    loaded: LoadedModel,
    output: Path | None,
    html: Path | None,
) -> None:
    """Save the record of an instrument and its page, then print the answer and its numbers."""
    write_outputs(record, output, html)
    say_missing(voice, loaded)
    voice.emit(record.view(record.instrument).to_json)
    voice.show(record.screen().show)
    say_outputs(voice, output, html, remind=True)
