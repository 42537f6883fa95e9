"""The files of a checkpoint: whether they have changed, and how much memory the model needs.

    fingerprint   digest of name, size and time of change of every file that loading may read
    need          bytes of the weights as they are loaded, COPIES times, and ALLOWANCE

The copies are gradients, the twin, and what checks take; ALLOWANCE stands for activations.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path

from leadline.lab.scan.sources import CheckpointSource

__all__ = ["ALLOWANCE", "COPIES", "fingerprint", "free_memory", "memory_needed"]

COPIES = 4
"""The weights, their gradients, the twin with random weights, and what checks copy of them: 3.5 times
the weights were measured on models of 250 and 700 MB."""
ALLOWANCE = 300 * 2**20
"""Bytes beside the weights: what a worker process has more than it had before it loaded a model."""
_READ = (".safetensors", ".json", ".gguf", ".txt", ".model", ".py", ".jinja")
_OF_THE_RUN = ("trainer_state.json",)
"""Written again while a run goes on, and read for the step alone."""
_BYTES = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1}
_ITEM_SIZES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class _Tensor:
    """The number of values of a stored tensor and of bytes for each."""

    values: int
    item_size: int


def fingerprint(checkpoint: CheckpointSource) -> str:
    """Return a digest that changes when a file of the checkpoint does; "" for what is no path."""
    path = checkpoint.path
    if path is None:
        return ""
    digest = hashlib.sha256()
    for file in _files_of(path):
        try:
            facts = file.stat()
        except OSError:  # it has been removed since the folder was listed
            continue
        digest.update(f"{file.name} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:32]


def memory_needed(checkpoint: CheckpointSource, *, dtype: str | None = None) -> int | None:
    """Return about how many bytes measuring a checkpoint takes; None where its files do not say."""
    path = checkpoint.path
    if path is None:
        return None
    weights = 0
    for file in _files_of(path):
        tensors = _tensors_in(file)
        weights += sum(
            one.values * (one.item_size if dtype is None else _ITEM_SIZES[dtype]) for one in tensors
        )
    return COPIES * weights + ALLOWANCE if weights else None


def free_memory() -> int | None:
    """Return the bytes that are free on this machine; None where nobody knows."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    free = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return None if free is None else int(free) * 1024


def _files_of(path: Path) -> list[Path]:
    """What loading may read, in the order of names."""
    if path.is_file():
        return [path]
    return sorted(
        one
        for one in path.iterdir()
        if one.is_file() and one.suffix.lower() in _READ and one.name not in _OF_THE_RUN
    )


def _tensors_in(file: Path) -> list[_Tensor]:
    """The tensors of a safetensors file, from its header; of a GGUF file as float32."""
    if file.suffix.lower() == ".gguf":
        return _tensors_in_gguf(file)
    if file.suffix.lower() != ".safetensors":
        return []
    try:
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            header = json.loads(opened.read(min(length, file.stat().st_size)))
        return [
            _Tensor(math.prod(entry["shape"]), _BYTES.get(entry["dtype"], 1))
            for name, entry in header.items()
            if name != "__metadata__"
        ]
    except (OSError, struct.error, ValueError, LookupError, TypeError, AttributeError):
        return []  # loading says what is wrong with it


def _tensors_in_gguf(file: Path) -> list[_Tensor]:
    try:
        from gguf import GGUFReader

        return [_Tensor(int(one.n_elements), 4) for one in GGUFReader(file).tensors]
    except Exception:  # without the extra, or of a damaged file: loading says it
        return []
