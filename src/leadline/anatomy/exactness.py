"""Computing about a model is not computing in it: no gradients, no automatic half precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["exactly"]


@contextmanager
def exactly() -> Iterator[None]:
    """Without gradients and with autocast switched off, whatever the caller is in."""
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        if not torch.cuda.is_available():
            yield
            return
        with torch.autocast("cuda", enabled=False):
            yield
