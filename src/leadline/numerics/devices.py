"""What a computation may do where its tensors stand: ask for numbers, or go through them in pieces.

On a GPU a question stops the program until all the work before it is done, and many small operations
take longer than a large one. On a CPU a question costs nothing, and a temporary tensor of the size of
the stream costs more than what is done with it: its memory is fetched from the system again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

__all__ = ["as_on_a_gpu", "by_rows", "is_far", "widest_float"]

Tensor = torch.Tensor
_PIECE = 2**18
"""Numbers of a tensor that are taken at once on a CPU: 1 MB, the second-level cache of one core. Pieces
of 2^15 take half as long again; of the whole of 12 MB, memory took nine times as long as work."""
_everything_is_far: ContextVar[bool] = ContextVar("everything is far", default=False)


def is_far(x: Tensor) -> bool:
    """Whether a question for a number of this tensor would make the program wait."""
    return x.device.type != "cpu" or _everything_is_far.get()


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """Treat tensors of the CPU as those of a GPU, to see what a GPU would be asked."""
    token = _everything_is_far.set(True)
    try:
        yield
    finally:
        _everything_is_far.reset(token)


def widest_float(device: torch.device) -> torch.dtype:
    """The number type in which long sums are taken: float64, which Apple's GPUs do not have."""
    return torch.float32 if device.type == "mps" else torch.float64


def by_rows(statistic: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """One number for each row of tensors [..., width], whose statistic makes one of each row alone."""
    first = tensors[0]
    width = max(first.shape[-1], 1)
    if first.numel() <= _PIECE or is_far(first) or not all(t.is_contiguous() for t in tensors):
        return statistic(*tensors)
    rows = [one.view(-1, width) for one in tensors]
    pieces = [one.split(max(1, _PIECE // width)) for one in rows]
    return torch.cat([statistic(*parts) for parts in zip(*pieces, strict=True)]).view(
        first.shape[:-1]
    )
