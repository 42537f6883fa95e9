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


_WHY = {
    "unclosed": "is still being written, or its writer was cut off: it has no checksums yet",
    "without checksums": "was written before records had checksums",
}


@contextmanager
def open_records(voice: Voice, files: Sequence[Path]) -> Iterator[list[Record]]:
    """The records in these files, open for reading."""
    from leadline.record import Record
    from leadline.record.views import written_by
    from leadline.record.words.unfinished import unfinished_text

    with ExitStack() as stack:
        records = [stack.enter_context(Record.open(file)) for file in files]
        for record in records:
            if record.integrity != "checked":
                voice.note(
                    f"{record.path} {_WHY[record.integrity]}, so damage would not be noticed."
                )
            if how_far := unfinished_text(record.provenance):
                writer = written_by(record.provenance) or "measure"
                voice.note(
                    f"{record.path} is {how_far}; the same `leadline {writer}` with -o {record.path} "
                    "goes on."
                )
        try:
            yield records
        except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
            doubtful = [record for record in records if record.integrity != "checked"]
            if not doubtful or isinstance(error, LeadlineError):
                raise
            raise RecordError(
                f"{doubtful[0].path} cannot be shown ({type(error).__name__}: {error}). It has no "
                "checksums that would tell whether it is damaged; copy it again or measure again."
            ) from error
