"""What the record of a scan says of its checkpoints: many models, or one at many steps, in one file.

Each checkpoint has rows under a run of its own and an entry `checkpoint:NAME`; what the measurement
itself said in its provenance stands under `measurement:NAME`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline.errors import RecordError

if TYPE_CHECKING:
    from leadline.record.record import Record

__all__ = ["CHECKPOINT", "MEASUREMENT", "SCAN", "is_of_checkpoint", "is_scan", "refuse_scan"]

SCAN = "scan"
CHECKPOINT = "checkpoint:"
MEASUREMENT = "measurement:"


def is_scan(record: Record) -> bool:
    """Say whether a record is that of a scan."""
    return record.instrument == SCAN


def is_of_checkpoint(key: str) -> bool:
    """Whether an entry of the provenance is that of one checkpoint of a scan."""
    return key.startswith((CHECKPOINT, MEASUREMENT))


def refuse_scan(record: Record) -> None:
    """Refuse the record of a scan where one model is asked about."""
    if is_scan(record):
        raise RecordError(
            "This record is a scan of many checkpoints; take one of them, as "
            "record.scan.checkpoint('checkpoint-100') in Python or FILE.leadline:checkpoint-100 on "
            "the command line."
        )
