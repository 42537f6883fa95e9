"""Whether a model is streamed: because it was asked for, or because it does not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from torch import nn

from leadline.errors import LoadingError
from leadline.models.streaming.mapped import FileMappings, check_system
from leadline.models.streaming.memory import free_memory, in_bytes
from leadline.models.streaming.pager import Pager, pager_of
from leadline.models.streaming.scratch import Scratch

__all__ = ["copy_refusal", "reason_to_stream", "stream_from_files"]


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
        count, free = weights(), free_memory()
    except (LoadingError, OSError, KeyError):
        return None  # whatever is wrong with the files is said where they are loaded
    if not count or count <= free:
        return None
    return f"the weights take {in_bytes(count)} and {in_bytes(free)} of memory are free"


def copy_refusal(model: nn.Module, *, times: int = 1) -> str | None:
    """Why there is no room for a copy of a streamed model; None where there is, or it is not streamed.

    Half of the free memory is left to what runs.
    """
    if pager_of(model) is None:
        return None
    count = times * sum(parameter.nbytes for parameter in model.parameters())
    free = free_memory()
    if count <= free // 2:
        return None
    copies = "a copy of it takes" if times == 1 else f"its weights {times} times over take"
    return f"{copies} {in_bytes(count)} of memory, of which {in_bytes(free)} are free"


def stream_from_files(model: nn.Module, why: str, scratch: Scratch, files: Sequence[Path]) -> Pager:
    """Read the weights of a loaded model from their files while it runs; refuse what cannot run.

    `files` are those it was loaded from, where they are known; else they are those it has mapped.
    """
    scratch.let_go()
    names = tuple(file.name for file in files) or _mapped_names(model)
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
            f"'{largest.name}' takes {in_bytes(largest.bytes)}, and the gradient of its "
            f"largest matrix {in_bytes(gradient)} more, at least "
            f"{in_bytes(largest.bytes + gradient)} together; {in_bytes(free)} are free."
        )
    return pager


def _mapped_names(model: nn.Module) -> tuple[str, ...]:
    mappings = FileMappings()
    files = {mappings.file_of(parameter) for parameter in model.parameters()}
    files = {file for file in files if file is not None and not file.endswith(" (deleted)")}
    return tuple(sorted(file.rpartition("/")[2] for file in files))
