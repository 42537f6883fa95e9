"""Numbers too small for a processor's fast path.

Sharp attention has weights below 1e-38: products with them are ten times slower than others, and
count for nothing beside weights near one. Inside `flushed` they are taken as zero in this thread,
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
