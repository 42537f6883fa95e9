"""Compute statistics of a model without gradients and without autocast."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["exactly"]


@contextmanager
def exactly() -> Iterator[None]:
    """Switch gradients and autocast off, whatever mode the caller is in."""
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        if not torch.cuda.is_available():
            yield
            return
        with torch.autocast("cuda", enabled=False):
            yield
