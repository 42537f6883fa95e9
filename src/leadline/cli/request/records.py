"""How commands open records: what no checksum vouches for is said, and never ends in a traceback."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from leadline.errors import LeadlineError, RecordError

if TYPE_CHECKING:
    from leadline.cli.screen.voice import Voice
    from leadline.record import Record


SUFFIX = ".leadline"
_WHY = {
    "unclosed": "is still being written, or its writer was cut off: it has no checksums yet",
    "without checksums": "was written before records had checksums",
}


@contextmanager
def open_records(
    voice: Voice, files: Sequence[Path], *, scans: bool = False
) -> Iterator[list[Record]]:
    """The records in these files, open for reading.

    `FILE.leadline:NAME` is one checkpoint of a scan. A scan of several is refused where a command
    is about one model, unless `scans` says that it can show them all.
    """
    from leadline.record.views import written_by
    from leadline.record.words.unfinished import unfinished_text

    with ExitStack() as stack:
        records = [stack.enter_context(_open(voice, file, scans=scans)) for file in files]
        for record in records:
            if record.path is not None:  # else it is one checkpoint of a scan
                _warn_of_damage(voice, record)
            if how_far := unfinished_text(record.provenance):
                writer = written_by(record.provenance) or "measure"
                voice.note(
                    f"{record.path} is {how_far}; the same `leadline {writer}` with -o {record.path} "
                    "goes on."
                )
        try:
            yield records
        except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
            doubtful = [r for r in records if r.integrity != "checked" and r.path is not None]
            if not doubtful or isinstance(error, LeadlineError):
                raise
            raise RecordError(
                f"{doubtful[0].path} cannot be shown ({type(error).__name__}: {error}). It has no "
                "checksums that would tell whether it is damaged; copy it again or measure again."
            ) from error


def _warn_of_damage(voice: Voice, record: Record) -> None:
    """Say where no checksum vouches for a file."""
    if record.integrity != "checked":
        voice.note(f"{record.path} {_WHY[record.integrity]}, so damage would not be noticed.")


def names_record(text: str) -> bool:
    """Whether a source names a record, or one checkpoint of a scan."""
    return text.endswith(SUFFIX) or f"{SUFFIX}:" in text


def _open(voice: Voice, text: Path, *, scans: bool) -> Record:
    """Open a record, or one checkpoint of the record of a scan."""
    from leadline.record import Record
    from leadline.record.run.scanned import is_scan

    file, mark, name = str(text).partition(f"{SUFFIX}:")
    named = bool(mark) and not text.exists()
    path = Path(f"{file}{SUFFIX}") if named else text
    record = Record.open(path)
    if not is_scan(record):
        if named:
            record.close()
            raise RecordError(
                f"{path} is the record of one model, so {name!r} names nothing in it; give {path}."
            )
        return record
    if scans and not named:
        return record
    from leadline.reading.scan.scan import one_checkpoint

    with record:
        _warn_of_damage(voice, record)
        return one_checkpoint(record, name if named else None, file=str(path))
