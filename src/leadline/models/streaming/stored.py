"""What safetensors files hold, by their headers: names, number types and shapes, and no weights."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from leadline.errors import LoadingError

__all__ = ["StoredTensor", "check_shards", "stored_bytes", "stored_tensors"]

_WIDTHS = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2}
_FLOATS = {"F64", "F32", "F16", "BF16"}


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a file: its number type as safetensors call it, and its shape."""

    kind: str
    shape: tuple[int, ...]

    def bytes_as(self, dtype: torch.dtype | None) -> int:
        """Its bytes in memory, of another number type where one is asked for."""
        width = _WIDTHS.get(self.kind, 1)
        if dtype is not None and self.kind in _FLOATS:
            width = dtype.itemsize
        return math.prod(self.shape) * width


def stored_tensors(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a file that has been checked to be one."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return {
        name: StoredTensor(entry["dtype"], tuple(entry["shape"]))
        for name, entry in header.items()
        if name != "__metadata__"
    }


def stored_bytes(files: Sequence[Path], dtype: torch.dtype | None) -> int:
    """How much memory the weights of these files take, in their own number type or another one."""
    return sum(tensor.bytes_as(dtype) for file in files for tensor in stored_tensors(file).values())


def check_shards(index: Path, weight_map: Mapping[str, str]) -> None:
    """Refuse a shard that lacks what the index says it holds: it belongs to another model."""
    held = {name: stored_tensors(index.parent / name) for name in set(weight_map.values())}
    for tensor, shard in sorted(weight_map.items()):
        if tensor not in held[shard]:
            others = sorted(held[shard])
            holds = "1 other tensor" if len(others) == 1 else f"{len(others)} other tensors"
            raise LoadingError(
                f"{shard} in {index.parent} does not hold {tensor}, which {index.name} says it "
                f"does; it holds {holds}{f', such as {others[0]}' if others else ''}. "
                "It is a part of another model, or of another version: fetch it again."
            )
