"""Weights that no file holds as the model needs them, kept in nameless files of their own.

A checkpoint is mapped as it is where the model has the tensors of the file. It has not where
another number type was asked for, where transformers makes one tensor of several (the experts of a
layer), and where a file holds weights quantised (GGUF). These are made once, one tensor at a time,
and written to a file without a name, which the system removes with the process, however that ends.
Every pass then streams them from there like all others. Making them anew for each of the passes
of a measurement, about ten, would take ten times as long and give the same numbers.

Space is reserved before a tensor is written: a disk that fills up would otherwise end the process.
"""

from __future__ import annotations

import errno
import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from leadline.errors import LoadingError, words_of
from leadline.models.streaming.mapped import FileMappings
from leadline.models.streaming.memory import in_bytes

__all__ = ["Scratch"]

SMALLEST = 2**12
"""Tensors below a page stay in memory: they could never be given back."""
LET_GO_AFTER = 2**26
"""After so many bytes the pages of the files that were read are given back."""
SOURCES = (".safetensors", ".gguf")
CACHE = "blobs"
"""The folder of the hub's cache to whose files, named by their sums, the names of a model link."""
_IN_MEMORY = ("tmpfs", "ramfs")
_SYNCHRONOUS = "HF_DEACTIVATE_ASYNC_LOAD"


class Scratch:
    """Nameless files for tensors that are made while a model is loaded."""

    def __init__(self, beside: Path) -> None:
        self.bytes = 0
        self.tensors = 0
        self._beside = beside if beside.is_dir() else beside.parent
        self._folder: Path | None = None
        self._unreleased = 0

    def expect(self, count: int) -> None:
        """Refuse at once what the disk has no room for."""
        folder = self._place()
        free = shutil.disk_usage(folder).free
        if count > free:
            raise LoadingError(
                f"To stream this model {in_bytes(count)} of converted weights have to be kept "
                f"in {folder}, and {in_bytes(free)} are free there; set TMPDIR to a folder on "
                "a larger disk."
            )

    def keep(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same values in a file; the tensor that was given may be let go."""
        values = self._new_storage(tensor.nbytes)
        # Named, because some models make tensors here while transformers builds without values.
        kept: Any = torch.empty(0, dtype=tensor.dtype, device="cpu")
        kept.set_(values, 0, tensor.shape)
        kept.copy_(tensor.detach())
        self.bytes += tensor.nbytes
        self.tensors += 1
        self._unreleased += tensor.nbytes
        if self._unreleased > LET_GO_AFTER:
            self.let_go()
        return kept

    def convert(self, model: nn.Module, dtype: torch.dtype) -> None:
        """Give all floating weights and buffers of a model another number type, one by one."""
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point() and tensor.dtype != dtype:
                values = tensor.detach().to(dtype)
                tensor.data = values if values.nbytes < SMALLEST else self.keep(values)

    def let_go(self) -> None:
        """Give back the pages of the files read and of those written.

        They are those of every model of the process, so none may be collected meanwhile: its
        addresses could be those of something else by then.
        """
        collects = gc.isenabled()
        gc.disable()
        try:
            for region in FileMappings().of_files(_is_read_or_written):
                try:
                    region.give_back()
                except OSError as error:
                    if error.errno != errno.ENOMEM:  # another thread has let go of the whole file
                        raise
        finally:
            if collects:
                gc.enable()
        self._unreleased = 0

    @contextmanager
    def catching(self) -> Iterator[None]:
        """Keep every parameter that is set meanwhile and lies in no file.

        transformers would convert tensors ahead in several threads, and hold all of them.
        """
        before = os.environ.get(_SYNCHRONOUS)
        os.environ[_SYNCHRONOUS] = "1"
        # The annotation of torch leaves out that a hook may return another parameter.
        hook: Any = self._catch
        handle = register_module_parameter_registration_hook(hook)
        try:
            yield
        finally:
            handle.remove()
            if before is None:
                os.environ.pop(_SYNCHRONOUS, None)
            else:
                os.environ[_SYNCHRONOUS] = before

    def _catch(self, module: nn.Module, name: str, parameter: nn.Parameter) -> nn.Parameter | None:
        if parameter is None or parameter.device.type != "cpu" or parameter.nbytes < SMALLEST:
            return None
        if FileMappings().region_of(parameter) is not None:
            return None
        kept = nn.Parameter(self.keep(parameter), requires_grad=parameter.requires_grad)
        vars(kept).update(vars(parameter))  # transformers marks what needs no random values
        return kept

    def _new_storage(self, count: int) -> torch.UntypedStorage:
        folder = self._place()
        number, name = tempfile.mkstemp(prefix="leadline-", dir=folder)
        try:
            os.posix_fallocate(number, 0, count)
            storage: Any = torch.UntypedStorage.from_file(name, shared=True, nbytes=count)
            return storage
        except (OSError, RuntimeError) as error:
            raise LoadingError(
                f"Converted weights cannot be kept in {folder} "
                f"({words_of(error, first_line=True).rstrip('.')}, after "
                f"{in_bytes(self.bytes)}); set TMPDIR to a folder on a larger disk."
            ) from error
        finally:
            os.close(number)
            Path(name).unlink()

    def _place(self) -> Path:
        if self._folder is None:
            places = [Path(tempfile.gettempdir()), Path("/var/tmp"), self._beside]  # noqa: S108 - files there have no name
            usable = [
                place
                for place in places
                if place.is_dir() and os.access(place, os.W_OK) and not _lies_in_memory(place)
            ]
            if not usable:
                raise LoadingError(
                    "Converted weights have to be kept on a disk, and neither "
                    f"{', '.join(map(str, places[:-1]))} nor {places[-1]} is a writable folder on "
                    "one; set TMPDIR to such a folder."
                )
            self._folder = usable[0]
        return self._folder


def _is_read_or_written(path: str) -> bool:
    return path.endswith((*SOURCES, " (deleted)")) or Path(path).parent.name == CACHE


def _lies_in_memory(folder: Path) -> bool:
    """Whether the files of a folder are kept in memory instead of on a disk."""
    folder = folder.resolve()
    best, kind = -1, ""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        parts = line.split()
        mount = Path(parts[1].replace("\\040", " "))
        if (folder == mount or mount in folder.parents) and len(mount.parts) >= best:
            best, kind = len(mount.parts), parts[2]
    return kind in _IN_MEMORY
