"""The checkpoint of a run: one safetensors file, replaced in one step.

It holds the weights, both moments of AdamW, the state of the random numbers, the buffers of the
model, and as JSON the step, the rows so far and what the stops remember. A run that goes on from
it gives the same numbers to the bit on the same machine (on the CPU, with the same number of
threads). The file says which run it belongs to; one of another run is refused.
"""

from __future__ import annotations

import json
import os
import uuid
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from leadline.errors import LabError, require
from leadline.record import Reading, Site

__all__ = ["FILE", "Checkpoint", "read_checkpoint", "work_folder", "write_checkpoint"]

FILE = "checkpoint.safetensors"
_FORMAT = "leadline training 1"
_ROWS = "rows"


@dataclass(frozen=True)
class Checkpoint:
    """All that a run needs to go on."""

    run: dict[str, Any]
    """Which run: recipe, training, seed. Another one is refused."""
    state: dict[str, Any]
    """Numbers that are not tensors."""
    tensors: dict[str, Tensor]
    readings: list[Reading]


def work_folder(path: Path) -> Path:
    """Where the checkpoints of a record that grows are."""
    return path.with_name(f"{path.name}.work")


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write the file beside the old one and put it in its place."""
    save = require("safetensors.torch", extra="hf").save_file
    rows = json.dumps([_row(reading) for reading in checkpoint.readings]).encode()
    tensors = {name: tensor.detach().contiguous() for name, tensor in checkpoint.tensors.items()}
    tensors[_ROWS] = torch.frombuffer(bytearray(rows), dtype=torch.uint8)
    about = {
        "format": _FORMAT,
        "run": json.dumps(checkpoint.run, sort_keys=True),
        "state": json.dumps(checkpoint.state),
    }
    partial = folder / f".{FILE}.{uuid.uuid4().hex}.partial"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save(tensors, partial, metadata=about)
        os.replace(partial, folder / FILE)  # noqa: PTH105 (the atomic call, by its own name)
    except Exception as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise LabError(
            f"The checkpoint in {folder} cannot be written: {reason or error}. What was written "
            "before is kept; free some space or choose another folder, and run it again to go on."
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def read_checkpoint(folder: Path, run: dict[str, Any]) -> Checkpoint | None:
    """Read the checkpoint in a folder; None if there is none, an error if another run wrote it."""
    path = folder / FILE
    if not path.is_file():
        return None
    open_file = require("safetensors", extra="hf").safe_open
    try:
        with open_file(path, framework="pt") as file:
            about = file.metadata() or {}
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except Exception as error:
        raise LabError(
            f"The checkpoint {path} cannot be read ({error}); remove it to begin the run anew."
        ) from error
    if about.get("format") != _FORMAT:
        raise LabError(f"{path} is not a checkpoint of a training run; choose another folder.")
    saved_run = json.loads(about["run"])
    this_run = json.loads(json.dumps(run))
    if saved_run != this_run:
        raise LabError(
            f"The checkpoint in {folder} belongs to another run ({_difference(saved_run, this_run)}); "
            "choose another folder, or remove it to begin anew."
        )
    rows = json.loads(bytes(tensors.pop(_ROWS).numpy()).decode())
    return Checkpoint(
        run=saved_run,
        state=json.loads(about["state"]),
        tensors=tensors,
        readings=[_reading(row) for row in rows],
    )


def _row(reading: Reading) -> list[Any]:
    return [
        reading.quantity,
        list(astuple(reading.site)),
        reading.statistic,
        reading.value,
        reading.lower,
        reading.upper,
        reading.run,
        reading.step,
        reading.seed,
    ]


def _reading(row: list[Any]) -> Reading:
    quantity, site, *values = row
    return Reading(quantity, Site(*site), *values)


def _difference(saved_run: dict[str, Any], this_run: dict[str, Any], path: str = "") -> str:
    """The first field in which two runs differ: `steps is 200 there and 300 here`."""
    for key in dict.fromkeys((*saved_run, *this_run)):
        one, other = saved_run.get(key), this_run.get(key)
        if one == other:
            continue
        if isinstance(one, dict) and isinstance(other, dict):
            return _difference(one, other, f"{path}{key}.")
        return f"{path}{key} is {one!r} there and {other!r} here"
    return "its description differs"
