"""Token ids from a file.

.txt           one example per line, ids separated by blanks or commas
.json          [[1, 2], [3]], or {"input_ids": [[1, 2], [3]]}
.npy           an array of whole numbers, [token] or [example, token]; pickled arrays are refused
.safetensors   one tensor of whole numbers, or one called input_ids
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import nn

from leadline.errors import InputError, check_path, require
from leadline.models.inputs.batch import Inputs
from leadline.models.inputs.text import inputs_from_rows, read_text

__all__ = ["token_file"]


def token_file(path: str | Path, model: nn.Module, *, truncate: bool = False) -> Inputs:
    """Read token ids in the format that the file's ending names."""
    path = check_path(path, error=InputError)
    readers = {".txt": _text, ".json": _json, ".npy": _array, ".safetensors": _safetensors}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InputError(
            f"{path} has an unknown ending; token files are {', '.join(sorted(readers))}."
        )
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    rows = _rows(reader(path), path)
    preview = " ".join(str(token) for token in rows[0][:12])
    return inputs_from_rows(rows, model, kind="token file", truncate=truncate, preview=preview)


def _rows(value: Any, path: Path) -> list[list[int]]:
    if isinstance(value, list) and value and not any(isinstance(row, list) for row in value):
        value = [value]
    if not isinstance(value, list) or not value or not all(isinstance(r, list) for r in value):
        raise InputError(f"{path} holds no rows of token ids; give one list of ids per example.")
    for example, row in enumerate(value, start=1):
        for position, token in enumerate(row, start=1):
            if not isinstance(token, int) or isinstance(token, bool):
                raise InputError(
                    f"{path}: {token!r} (example {example}, token {position}) is not a token id; "
                    "ids are whole numbers."
                )
    return value


def _text(path: Path) -> Any:
    def number(word: str) -> Any:
        try:
            return int(word)
        except ValueError:
            return word

    lines = read_text(path).replace(",", " ").splitlines()
    return [[number(word) for word in line.split()] for line in lines if line.strip()]


def _json(path: Path) -> Any:
    try:
        value = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON that can be read: {error}.") from error
    return value.get("input_ids") if isinstance(value, dict) else value


def _array(path: Path) -> Any:
    import numpy as np

    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(
            f"{path} is not an array that can be read without unpickling: {error}."
        ) from error
    return _as_lists(array, path)


def _safetensors(path: Path) -> Any:
    module = require("safetensors.numpy", extra="hf")
    try:
        tensors = module.load_file(path)
    except Exception as error:
        raise InputError(f"{path} is cut short or damaged: {error}.") from error
    if "input_ids" not in tensors and len(tensors) != 1:
        raise InputError(
            f"{path} holds {len(tensors)} tensors ({', '.join(sorted(tensors))}); "
            "call the one with the token ids input_ids."
        )
    array = tensors["input_ids"] if "input_ids" in tensors else next(iter(tensors.values()))
    return _as_lists(array, path)


def _as_lists(array: Any, path: Path) -> Any:
    if array.dtype.kind not in "iu" or array.ndim not in (1, 2):
        raise InputError(
            f"{path} holds {array.dtype} of shape {list(array.shape)}; token ids are whole "
            "numbers, [token] or [example, token]."
        )
    return array.tolist()
