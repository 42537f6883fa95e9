"""Files of a checkpoint: only safetensors are read, and files are replaced in one step."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from leadline.errors import LoadingError, RecipeError, require

__all__ = ["WEIGHTS", "read_json", "read_tensors", "write_model"]

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")


def read_json(path: Path) -> dict[str, Any]:
    """The content of a JSON file that must hold a mapping."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise LoadingError(f"{path} is not readable as JSON: {error}") from error
    if not isinstance(content, dict):
        raise LoadingError(f"{path} holds no mapping; fetch it again.")
    return content


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of model.safetensors, or of the parts that its index names."""
    if (folder / WEIGHTS).is_file():
        return _read_part(folder / WEIGHTS)
    if not (folder / INDEX).is_file():
        raise LoadingError(_no_weights(folder))
    places = read_json(folder / INDEX).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise LoadingError(f"{folder / INDEX} has no weight_map; fetch it again.")
    tensors: dict[str, Tensor] = {}
    for name in sorted({Path(str(place)).name for place in places.values()}):
        if not (folder / name).is_file():
            raise LoadingError(
                f"{name} is missing in {folder}, though {INDEX} names it; fetch it again."
            )
        tensors.update(_read_part(folder / name))
    return tensors


def _read_part(path: Path) -> dict[str, Tensor]:
    torch_files = require("safetensors.torch", extra="hf")
    try:
        return torch_files.load_file(path)
    except Exception as error:
        raise LoadingError(
            f"{path} is cut short or damaged ({path.stat().st_size} bytes: {error}); "
            "fetch it again."
        ) from error


def _no_weights(folder: Path) -> str:
    pickles = sorted(p.name for p in folder.iterdir() if p.suffix.lower() in PICKLES)
    if pickles:
        return (
            f"The weights in {folder} are a pickle ({pickles[0]}). A pickle can run code when it "
            "is opened, so it is not read here. Convert it where you trust it: load it with "
            "transformers and call save_pretrained, which writes safetensors."
        )
    return f"{folder} has no weights: neither {WEIGHTS} nor {INDEX} is there."


def write_model(
    folder: Path, *, description: tuple[str, Mapping[str, Any]], tensors: Mapping[str, Tensor]
) -> None:
    """Write the describing JSON file and the weights beside their places, then move them there."""
    torch_files = require("safetensors.torch", extra="hf")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecipeError(
            f"The folder {folder} cannot be made: {error.strerror}; give another one to save into."
        ) from error
    name, content = description
    places = {
        folder / name: folder / f".{name}.part",
        folder / WEIGHTS: folder / f".{WEIGHTS}.part",
    }
    try:
        places[folder / name].write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        torch_files.save_file(
            _separate(tensors), places[folder / WEIGHTS], metadata={"format": "pt"}
        )
        for place, part in places.items():
            part.replace(place)
    finally:
        for part in places.values():
            with contextlib.suppress(FileNotFoundError):
                part.unlink()


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Give each tensor its own memory: what two parts share is written under both names."""
    storages: set[int] = set()
    separate: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        plain = tensor.detach().contiguous()
        storage = plain.untyped_storage().data_ptr()
        separate[name] = plain.clone() if storage in storages else plain
        storages.add(storage)
    return separate
