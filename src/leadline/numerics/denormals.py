"""Numbers too small for a processor's fast path.

Sharp attention has weights below the normal range of float32. Products with them are much slower
than others, and they count for nothing beside weights near one: left out, they move a singular
value by less than its last digit. Inside `flushed` they are taken as zero in this thread,
where the processor can do that; outside everything is as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

__all__ = ["flushed", "is_flushing"]


def is_flushing() -> bool:
    """Whether this thread takes denormal results as zero."""
    return bool(np.float32(1e-30) * np.float32(1e-10) == 0)


@contextmanager
def flushed() -> Iterator[None]:
    """Take denormal numbers as zero inside."""
    before = is_flushing()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
