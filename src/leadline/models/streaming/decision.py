"""Whether a model is streamed: because it was asked for, or because it does not fit into memory."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from leadline.errors import LoadingError
from leadline.models.streaming.mapped import FileMappings, check_system
from leadline.models.streaming.memory import free_memory, in_gigabytes
from leadline.models.streaming.pager import Pager
from leadline.models.streaming.scratch import Scratch

__all__ = ["reason_to_stream", "stream_from_files"]


def reason_to_stream(
    stream: bool | None, weights: Callable[[], int | None], *, device: str, source: str
) -> str | None:
    """Why the model is streamed, or None. `stream` is the caller's word; None leaves it to memory.

    `weights` gives the bytes of the weights, or None for a source without files of weights.
    """
    if stream is False:
        return None
    if stream:
        if device != "cpu":
            raise LoadingError(
                f"A streamed model computes on the CPU, where its files are mapped, and the device "
                f"{device!r} was asked for; leave out one of the two."
            )
        check_system()
        if weights() is None:
            raise LoadingError(
                f"{source} has no files of weights to stream from; stream=True (--stream) is for "
                "checkpoints: a folder with safetensors, a hub id, or a GGUF file."
            )
        return "it was asked for"
    if device != "cpu":
        return None
    try:
        check_system()
        free = free_memory()
    except (LoadingError, OSError, KeyError):
        return None
    count = weights()
    if not count or count <= free:
        return None
    return f"its weights take {in_gigabytes(count)} and {in_gigabytes(free)} of memory are free"


def stream_from_files(model: nn.Module, why: str, scratch: Scratch) -> Pager:
    """Read the weights of a loaded model from their files while it runs; refuse what cannot run."""
    scratch.let_go()
    mappings = FileMappings()
    files = {mappings.file_of(parameter) for parameter in model.parameters()}
    files = {file for file in files if file is not None and not file.endswith(" (deleted)")}
    names = tuple(sorted(file.rpartition("/")[2] for file in files))
    pager = Pager(model, why=why, files=names, scratch=scratch.bytes)
    if not pager.bytes:
        raise LoadingError(
            f"None of the weights of {type(model).__name__} lie in files, so there is nothing to "
            "stream; leave out stream=True (--stream)."
        )
    largest = pager.largest
    inside = model.get_submodule(largest.name)
    gradient = max((p.nbytes for p in inside.parameters()), default=0)
    free = free_memory()
    if largest.bytes + gradient > free:
        raise LoadingError(
            f"There is not enough memory even for one block of {type(model).__name__}: "
            f"'{largest.name}' takes {in_gigabytes(largest.bytes)}, and the gradient of its "
            f"largest matrix {in_gigabytes(gradient)} more, at least "
            f"{in_gigabytes(largest.bytes + gradient)} together; {in_gigabytes(free)} are free."
        )
    return pager
