"""Which passes of a model are Leadline's own, and not those of somebody's loop.

A watch has hooks on a model, on backward and on the optimizers while the user, or another watch,
measures the same model. What it hears then is none of the loop's training. Every thread has passes
of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["own_depth", "own_passes"]


class _Depth(threading.local):
    depth = 0


_here = _Depth()


@contextmanager
def own_passes() -> Iterator[None]:
    """Whatever passes of a model run inside of this are our own."""
    _here.depth += 1
    try:
        yield
    finally:
        _here.depth -= 1


def own_depth() -> int:
    """How many such blocks this thread is inside of; 0 where passes are the user's."""
    return _here.depth
