"""What the record of a scan says of its checkpoints: many models, or one at many steps, in one file.

Each checkpoint has rows under a run of its own and an entry `checkpoint:NAME`; what the measurement
itself said in its provenance stands under `measurement:NAME`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leadline.record.record import Record

__all__ = ["CHECKPOINT", "MEASUREMENT", "SCAN", "is_of_checkpoint", "is_scan"]

SCAN = "scan"
CHECKPOINT = "checkpoint:"
MEASUREMENT = "measurement:"


def is_scan(record: Record) -> bool:
    """Say whether a record is that of a scan."""
    return record.instrument == SCAN


def is_of_checkpoint(key: str) -> bool:
    """Whether an entry of the provenance is that of one checkpoint of a scan."""
    return key.startswith((CHECKPOINT, MEASUREMENT))
