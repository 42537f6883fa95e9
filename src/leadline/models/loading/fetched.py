"""What the cache of the hub holds already: where the files of a model lie before it is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from leadline.errors import require

__all__ = ["fetched_folder"]

_NAMES = ("model.safetensors", "model.safetensors.index.json")


def fetched_folder(name: str) -> Path | None:
    """The folder in which all weights of a hub model lie; None where some are still to be fetched.

    The files there are links: their own names say what they are, those of their targets do not.
    """
    hub: Any = require("huggingface_hub", extra="hf")
    try:
        for file in _NAMES:
            place = hub.try_to_load_from_cache(name, file)
            if isinstance(place, str) and _is_whole(Path(place)):
                return Path(place).parent
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
    ):  # no name of the hub; whoever loads it says so
        return None
    return None


def _is_whole(place: Path) -> bool:
    if place.suffix != ".json":
        return place.is_file()
    shards = set(json.loads(place.read_text(encoding="utf-8"))["weight_map"].values())
    return all((place.parent / str(shard)).is_file() for shard in shards)
